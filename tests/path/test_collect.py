"""Collection of what strangers send: nothing leaves the folder, nothing grows without end, nobody is somebody else."""

import gzip
import io
import os
import re
import shutil
import struct
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from graders.classroom import archive as archives
from graders.classroom.archive import ArchiveError, unpack
from graders.classroom.whose import whose
from tests.path.course_maker import hand_in, make_course, release

NOTEBOOK = b'{"cells": []}'


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A course with one submission, as a notebook to send in."""
    root = make_course(tmp_path_factory.mktemp("course"))
    release(root)
    shutil.move(hand_in(root, "x"), root / "tiny.ipynb")
    shutil.rmtree(root / "submitted")
    return root


@pytest.fixture
def drop(root, tmp_path):
    """A folder of what came in; nobody has handed in before."""
    shutil.rmtree(root / "submitted", ignore_errors=True)
    (tmp_path / "drop").mkdir()
    return tmp_path / "drop"


def a_zip(path: Path, **files: bytes) -> Path:
    """A zip; names with "/" and dots are given as they are."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return path


def a_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def a_member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


OUTSIDE = [
    "../evil.ipynb",
    "a/../../evil.ipynb",
    "/tmp/evil.ipynb",
    "..\\evil.ipynb",
    "C:\\evil.ipynb",
    "\\\\host\\evil",
    "..",
]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_no_member_leaves_the_folder(tmp_path, name, kind):
    path = tmp_path / f"in/ada.{kind}"
    path.parent.mkdir()
    if kind == "zip":
        a_zip(path, **{name: NOTEBOOK, "tiny.ipynb": NOTEBOOK})
    else:
        a_tar(path, (a_member(name), NOTEBOOK), (a_member("tiny.ipynb"), NOTEBOOK))
    told = unpack(path, tmp_path / "out/ada").left_out
    assert [line for line in told if "left out, it would go to another folder" in line] == told
    assert len(told) == 1
    assert below(tmp_path / "out") == ["ada/tiny.ipynb"]
    assert not list(tmp_path.rglob("evil*")) and not Path("/tmp/evil.ipynb").exists()


def test_no_link_device_or_pipe_comes_out_of_an_archive(tmp_path):
    kinds = {"sym": (tarfile.SYMTYPE, "/etc/passwd"), "hard": (tarfile.LNKTYPE, "tiny.ipynb"),
             "pipe": (tarfile.FIFOTYPE, ""), "tty": (tarfile.CHRTYPE, ""), "disk": (tarfile.BLKTYPE, "")}  # fmt: skip
    members = [(a_member(name, *kind), b"") for name, kind in kinds.items()]
    path = a_tar(tmp_path / "a.tar.gz", *members, (a_member("tiny.ipynb"), NOTEBOOK))
    told = unpack(path, tmp_path / "out").left_out
    assert len(told) == len(kinds) and all("it is a link or another special file" in line for line in told)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["tiny.ipynb"]
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        info = zipfile.ZipInfo("link.ipynb")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
        info = zipfile.ZipInfo("tiny.ipynb")
        info.external_attr = 0o104000 << 16  # set uid, and nobody may read it
        archive.writestr(info, NOTEBOOK)
    assert unpack(tmp_path / "b.zip", tmp_path / "zip").left_out == [
        "link.ipynb: left out, it is a link or another special file"
    ]
    assert (tmp_path / "zip/tiny.ipynb").read_bytes() == NOTEBOOK
    assert (tmp_path / "zip/tiny.ipynb").stat().st_mode & 0o7111 == 0


@pytest.fixture
def small(monkeypatch):
    """Limits that a test can reach."""
    for name, value in (("MAX_BYTES", 10_000), ("MAX_ONE", 50_000), ("MAX_ONE_FILES", 20), ("MAX_PIECE", 20_000)):
        monkeypatch.setattr(archives, name, value)


def lying(path: Path, size: int) -> Path:
    """Change what a zip says of its first file's size."""
    data = bytearray(path.read_bytes())
    local, central = data.find(b"PK\3\4"), data.find(b"PK\1\2")
    data[local + 22 : local + 26] = data[central + 24 : central + 28] = struct.pack("<I", size)
    path.write_bytes(data)
    return path


def header_bomb(path: Path) -> Path:
    """A tar whose extended header claims to have a terabyte of text."""
    info = a_member("./PaxHeaders/x", tarfile.XHDTYPE)
    info.size = 1 << 40
    with gzip.open(path, "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 10_000)
    return path


def sparse(path: Path) -> Path:
    info = a_member("tiny.ipynb")
    info.size = 1 << 40
    with gzip.open(path, "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 10_000)
    return path


def zip64(path: Path) -> Path:
    data = a_zip(path, **{"tiny.ipynb": NOTEBOOK}).read_bytes()
    end = data.rfind(b"PK\5\6")
    record = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 1 << 40, 1 << 40, 1 << 45, 0)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    path.write_bytes(data[:end] + record + locator + data[end:])
    return path


def nested(path: Path) -> Path:
    inner = a_zip(path.with_name("c.zip"), **{"tiny.ipynb": NOTEBOOK}).read_bytes()
    middle = a_zip(path.with_name("b.zip"), **{"c.zip": inner, "tiny.ipynb": NOTEBOOK}).read_bytes()
    return a_zip(path, **{"b.zip": middle})


BOMBS = {
    "many files": (lambda path: a_zip(path, **{f"{i}.txt": b"" for i in range(30)}), "more than 20 files"),
    "many files in a tar": (
        lambda path: a_tar(path, *((a_member(f"{i}.txt"), b"") for i in range(30))), "more than 20 files",
    ),
    "zeros": (lambda path: a_zip(path, **{f"{i}.bin": b"\0" * 9_000 for i in range(9)}), "would unpack to more"),
    "a large file": (lambda path: a_zip(path, **{"tiny.ipynb": b"\0" * 60_000}), "would unpack to more"),
    "a file larger than it says": (
        lambda path: lying(a_zip(path, **{"tiny.ipynb": b"\0" * 60_000}), 100), "damaged",
    ),
    "a tar's header": (header_bomb, "claim more than they can hold"),
    "a tar's member": (sparse, "would unpack to more"),
    "a zip's list": (zip64, "more than 20 files"),
    "a stream of zeros": (lambda path: path.write_bytes(gzip.compress(b"\0" * 10**7)) and path, ""),
    "cut short": (lambda path: path.write_bytes(a_zip(path, x=b"x" * 500).read_bytes()[:-30]) and path, "is damaged"),
    "nothing": (lambda path: path.write_bytes(b"") or path, "is damaged"),
    "words": (lambda path: path.write_bytes(b"hello") and path, "is damaged"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "said"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_does_not_go_off(tmp_path, small, make, said):
    path = make(tmp_path / "ada.zip")
    if not said:  # an empty tar, however long
        assert unpack(path, tmp_path / "out").left_out == []
        return
    with pytest.raises(ArchiveError, match=said):
        unpack(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_archive_in_an_archive_in_an_archive(tmp_path, small):
    told = unpack(nested(tmp_path / "a.zip"), tmp_path / "out").left_out
    assert told == ["b.zip/c.zip: left out, it is an archive in an archive in an archive. Ask for another"]
    assert below(tmp_path / "out") == ["b/tiny.ipynb"]


def test_what_cannot_be_read_is_named(tmp_path, small):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("packed.ipynb", NOTEBOOK, zipfile.ZIP_LZMA)
        archive.writestr("large.ipynb", b"x" * 20_000)
        archive.writestr("tiny.ipynb", NOTEBOOK)
        archive.writestr("d/" * 20 + "tiny.ipynb", NOTEBOOK)
        archive.writestr("x" * 200 + ".ipynb", NOTEBOOK)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("tiny.ipynb", b"another")
    told = unpack(path, tmp_path / "out").left_out
    for said in ("compressed in an unsupported way", "large.ipynb: left out, it has more than", "its name is too long",
                 "tiny.ipynb: left out, the archive holds it twice"):  # fmt: skip
        assert sum(said in line for line in told) >= 1, told
    assert len(told) == 5
    assert (tmp_path / "out/tiny.ipynb").read_bytes() == NOTEBOOK


TINY = "tiny.ipynb"


@pytest.mark.parametrize(
    ("files", "known", "claims", "told"),
    [
        ([f"ada/{TINY}", f"ben/01_tiny/{TINY}", "carl_tiny.ipynb"], [], {"ada", "ben", "carl"}, 0),
        (["class/ada_tiny.ipynb", "class/ben-tiny.ipynb"], [], set(), 2),
        ([f"ada/{TINY}", "ada/ben_tiny.ipynb"], [], {"ada"}, 1),  # ada hands in for ben
        (["ada/ben_tiny.ipynb"], ["ada"], set(), 1),
        ([f"ada/ben/{TINY}"], ["ada"], {"ada"}, 0),
        ([f"ada/ben/{TINY}", f"ben/{TINY}"], [], {"ben"}, 1),
        (["aaa/ben_tiny.ipynb", f"ben/{TINY}"], [], {"ben"}, 1),
        ([f"gil/{TINY}", f"gil~/{TINY}"], [], {"gil"}, 1),
        (["..​_tiny.ipynb", ".._tiny.ipynb", "._tiny.ipynb", "-f_tiny.ipynb", "a;b_tiny.ipynb"], [], set(), 5),
        (
            [f"Jane Doe_31415_assignsubmission_file_/{TINY}", f"Bo Li_27_assignsubmission_file_{TINY}"],  # Moodle's
            [],
            {"Jane Doe", "Bo Li"},
            0,
        ),
        ([f"Jane Doe/{TINY}", "Bo van D_tiny.ipynb", "Al Li - tiny.ipynb"], [], {"Jane Doe", "Bo van D", "Al Li"}, 0),
        ([f"Jo  Do/{TINY}", f"Jo /{TINY}", f" Jo/{TINY}", f"Jo\u00a0Do/{TINY}", f"Jo\tDo/{TINY}"], [], set(), 5),
        (["eva/01_tiny.ipynb", "ada_01_tiny.ipynb"], [], {"eva", "ada"}, 0),
        ([f"a\nb/{TINY}", f"x\x1b[2J/{TINY}", f"{'y' * 200}/{TINY}", f"dot./{TINY}"], [], set(), 4),
        (["Jose\u0301_tiny.ipynb"], [], {"José"}, 0),
        ([f"ada/.ipynb_checkpoints/{TINY}", f"ada/__MACOSX/{TINY}", f"ada/.doctor/{TINY}.abc"], [], set(), 0),
        (["tiny.ipynb", "other.ipynb", "ada/notes.txt"], [], set(), 3),
        ([TINY, "bjorn_tiny.ipynb", "chen_tiny.ipynb"], [], {"bjorn", "chen"}, 1),
        ([f"a;b/{TINY}", "a;b/ben_tiny.ipynb"], [], set(), 2),
        (["ada/tiny (1).ipynb", "anna_Tiny.ipynb", "ben-tiny - Copy.ipynb"], [], {"ada", "anna", "ben"}, 0),
        (["ada/tiny (1).ipynb", f"ada/01_tiny/{TINY}"], [], {"ada"}, 1),
        (["ada/tiny (1).ipynb", "ada/tiny (2).ipynb"], [], set(), 1),
        (["ada/tiny.ipynb.txt", "ada_tiny.json", "ada/Tiny.IPYNB"], [], set(), 3),
    ],
)  # fmt: skip
def test_whose_it_is(files, known, claims, told):
    got, lines = whose(files, "01_tiny", ["tiny"], set(known))
    assert {student for _, student, _ in got} == claims
    assert len(lines) == told, lines
    assert all(".." not in student and "/" not in student for _, student, _ in got)
    if f"ben/{TINY}" in files:
        assert (f"ben/{TINY}", "ben", "tiny") in got


def test_one_hostile_archive_does_not_keep_the_class_out(root, drop, here):
    notebook = (root / "tiny.ipynb").read_bytes()
    a_zip(
        drop / "eve.zip",
        **{"../../submitted/ada/01_tiny/tiny.ipynb": b"evil", "/etc/x": b"", "ben_tiny.ipynb": b"evil"},
    )
    a_zip(drop / "ada.zip", **{"tiny.ipynb": notebook})
    a_tar(drop / "ben.tgz", (a_member("work/01_tiny/tiny.ipynb"), notebook))
    a_zip(drop / "mal.zip", **{"tiny.ipynb": notebook, "x\x1b[2J\n.txt": b""})
    header_bomb(drop / "bomb.tar.gz")
    (drop / "zoe.ipynb.zip").write_bytes(b"PK\3\4")
    os.mkfifo(drop / "pipe")
    (drop / "dev.ipynb").symlink_to("/dev/zero")
    with (drop / "big_tiny.ipynb").open("wb") as file:
        file.truncate(11_000_000)
    shutil.copytree(root / "exercises/01_tiny", drop / "hard")
    os.link(drop / "hard/tiny.ipynb", drop.parent / "elsewhere")
    code, _, err = here(root, "collect", "tiny", str(drop))
    assert code == 1
    assert all(line.isprintable() for line in err.splitlines())
    for said in (r"eve.zip/\.\./\.\./submitted.*: left out, it would go to another folder", "/etc/x: left out",
                 "bomb.tar.gz: left out, its headers", "zoe.ipynb.zip: left out, it is damaged",
                 "pipe: left out, it is a named pipe", "dev.ipynb: left out, it is a symbolic link",
                 r"mal.zip/x\\x1b\[2J\\n.txt: left out", "big_tiny.ipynb: left out, it has 11 MB"):  # fmt: skip
        assert len(re.findall(said, err)) == 1, (said, err)
    handed = below(root / "submitted")
    assert {"ada/01_tiny/tiny.ipynb", "mal/01_tiny/tiny.ipynb", "hard/01_tiny/tiny.ipynb"} <= set(handed)
    assert (root / "submitted/ada/01_tiny/tiny.ipynb").read_bytes() == notebook
    assert not Path("/etc/x").exists()
    assert (root / "submitted/hard/01_tiny/tiny.ipynb").stat().st_nlink == 1


def test_a_notebook_without_a_name_keeps_nobody_out(root, drop, here):
    for name in ("tiny", "bjorn_tiny", "chen_tiny"):
        shutil.copy(root / "tiny.ipynb", drop / f"{name}.ipynb")
    code, out, err = here(root, "collect", "tiny", str(drop))
    assert (code, out) == (1, "01_tiny: 2 collected into submitted/ (bjorn, chen)\n")
    remedy = "Put it into a folder NAME/, or rename it to NAME_tiny.ipynb"
    assert err == f"{drop}/tiny.ipynb: left out, there is no student name on it. {remedy}\n"


SAID = {
    "Jo  Do/tiny.ipynb": "'Jo  Do' is not a valid student name: .* and single blanks between them. Rename the folder",
    "a;b_tiny.ipynb": "'a;b' is not a valid student name: .*. Rename the file",
    "ada/other.ipynb": "the assignment has only tiny.ipynb. Rename it if it belongs to the assignment",
    "ada_Tiny.ipynb.txt": "its name does not end in .ipynb. Rename it to ada_tiny.ipynb",
    "ada/tiny.json": "its name does not end in .ipynb. Rename it to tiny.ipynb",
}


@pytest.mark.parametrize("file", SAID)
def test_the_remedy_is_told(file):
    claims, told = whose([file], "01_tiny", ["tiny"], set())
    assert not claims and len(told) == 1
    assert re.fullmatch(f"{re.escape(file)}: left out, {SAID[file]}", told[0]), told


def test_a_browsers_copy_is_the_notebook(root, drop, here):
    (drop / "ada").mkdir()
    shutil.copy(root / "tiny.ipynb", drop / "ada/tiny (1).ipynb")
    shutil.copy(root / "tiny.ipynb", drop / "anna_Tiny.ipynb")
    code, out, err = here(root, "collect", "tiny", str(drop))
    assert (code, out, err) == (0, "01_tiny: 2 collected into submitted/ (ada, anna)\n", "")
    assert (root / "submitted/ada/01_tiny/tiny.ipynb").is_file()
    (drop / "ada/tiny (2).ipynb").write_bytes(NOTEBOOK)
    code, out, err = here(root, "collect", "tiny", str(drop / "ada/tiny (2).ipynb"), str(drop))
    both = f"{drop}/ada/tiny (1).ipynb and {drop}/ada/tiny (2).ipynb"
    assert code == 1 and ("1 collected" in out or "1 as they were" in out)
    assert f"{both}: left out, each may be ada's tiny.ipynb. Rename the right one to tiny.ipynb" in err


def test_a_blank_in_a_name(root, drop, here):
    (drop / "Jane Doe").mkdir()
    shutil.copy(root / "tiny.ipynb", drop / "Jane Doe/tiny.ipynb")
    assert here(root, "collect", "tiny", str(drop)) == (0, "01_tiny: 1 collected into submitted/ (Jane Doe)\n", "")
    code, out, err = here(root, "grade", "tiny", "Jane Doe", "--workers", "1")
    assert (code, err) == (0, "") and "1 of 1 submissions graded" in out
    assert here(root, "scores", "--csv")[1].splitlines()[1].startswith("Jane Doe,6")


@pytest.mark.parametrize("pair", [("one/ada_tiny.ipynb", "two/ada_tiny.ipynb"), ("drop/ada/tiny.ipynb", "ada.zip"),
                                  ("drop/ada/tiny.ipynb", "drop/ada.zip"), ("ada.zip", "ada.tar.gz"),
                                  ("one/ada.zip", "two/ada.zip"), ("ada_tiny.ipynb", "b/ada.zip")])  # fmt: skip
def test_two_of_one_student_are_told_by_the_names_that_were_typed(root, drop, here, monkeypatch, pair):
    def put(name: str, data: bytes) -> str:
        path = drop / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".zip"):
            a_zip(path, **{"tiny.ipynb": data})
        elif name.endswith(".tar.gz"):
            a_tar(path, (a_member("tiny.ipynb"), data))
        else:
            path.write_bytes(data)
            return name
        return f"{name}/tiny.ipynb"

    given = list(dict.fromkeys(name.partition("/")[0] for name in pair))
    notebook = (root / "tiny.ipynb").read_bytes()
    files = [put(name, notebook) for name in pair]
    monkeypatch.setattr("graders.cli.Path.cwd", lambda: root)  # the paths are typed relative to another folder

    def run() -> tuple[int, str, str]:
        monkeypatch.chdir(drop)
        return here(drop, "collect", "tiny", *given)

    assert run() == (0, "01_tiny: 1 collected into submitted/ (ada)\n", "")
    put(pair[1], notebook + b"\n")
    code, out, err = run()
    assert code == 1 and ("1 collected into submitted/ (ada)" in out or "1 as they were" in out), err
    told = r"(\S+): left out, (\S+) is ada's tiny.ipynb too. Keep the right one\n"
    assert sorted(re.fullmatch(told, err).groups()) == sorted(files)


def test_an_archive_in_an_archive_is_named_as_it_came(root, drop, here):
    inner = a_zip(drop / "ada.zip", **{"notes.txt": b"", "tiny.ipynb": (root / "tiny.ipynb").read_bytes()}).read_bytes()
    (drop / "ada.zip").unlink()
    a_zip(drop / "class.zip", **{"ada.zip": inner, "ada/x.txt": b""})
    code, out, err = here(root, "collect", "tiny", "--from", "folders", str(drop / "class.zip"))
    assert code == 1 and ("1 collected into submitted/ (ada)" in out or "1 as they were" in out), err
    told = "left out, the assignment has only tiny.ipynb"
    assert sorted(err.splitlines()) == [
        f"{drop}/class.zip/{name}: {told}" for name in ("ada.zip/notes.txt", "ada/x.txt")
    ]


def test_a_file_that_cannot_be_read_keeps_nobody_out(root, drop, here, monkeypatch):
    for name in ("ada", "ben"):
        shutil.copy(root / "tiny.ipynb", drop / f"{name}_tiny.ipynb")
    copyfile = shutil.copyfile

    def refused(source: Path, target: Path, **more: bool) -> None:
        if source == drop / "ada_tiny.ipynb":
            raise PermissionError(13, "Permission denied")
        copyfile(source, target, **more)

    monkeypatch.setattr("graders.classroom.collect.shutil.copyfile", refused)
    code, out, err = here(root, "collect", "tiny", str(drop))
    assert (code, out) == (1, "01_tiny: 1 collected into submitted/ (ben)\n")
    told = "left out, it cannot be read (Permission denied). Check its permissions"
    assert err == f"{drop}/ada_tiny.ipynb: {told}\n"


@pytest.mark.parametrize("name", ["tiny" + " " * 200 + "x.ipynb", "_" * 250, "tiny_" * 40, "(1" * 120, "- " * 120])
def test_long_names_take_no_time(name):
    start = time.monotonic()
    whose([f"{number}/{name}" for number in range(1000)], "01_tiny", ["tiny"], set())
    assert time.monotonic() - start < 20  # it takes less than one; what backtracks takes hours


def test_what_the_instructor_put_into_downloaded_stays(root, drop, here):
    folder = root / "downloaded/01_tiny/archive"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(root / "tiny.ipynb", folder / "zoe_tiny.ipynb")
    shutil.copy(root / "tiny.ipynb", drop / "ada_tiny.ipynb")
    assert here(root, "collect", "tiny", str(drop))[0] == 0
    assert here(root, "collect", "tiny", str(folder)) == (0, "01_tiny: 1 collected into submitted/ (zoe)\n", "")
    assert below(root / "downloaded") == ["01_tiny/archive/zoe_tiny.ipynb"]
    assert [path.name for path in (root / "downloaded").iterdir()] == ["01_tiny"]


NOON = 1772366400  # 2026-03-01 12:00:00 UTC
AT_TEN = b"2026-03-01 10:00:00 UTC"


def dated(path: Path, when: tuple[int, ...], extra: bytes = b"", **more: bytes) -> Path:
    """A zip of an empty notebook with a time of its own."""
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("tiny.ipynb", when)
        info.extra = extra
        archive.writestr(info, NOTEBOOK)
        for name, data in more.items():
            archive.writestr(zipfile.ZipInfo(name.replace("__", ".")), data)
    os.utime(path, (NOON, NOON))
    return path


def dated_tar(path: Path, when: str) -> Path:
    """The same as a tar; its header has any number."""
    info = a_member("tiny.ipynb")
    info.pax_headers = {"mtime": when}
    a_tar(path, (info, NOTEBOOK))
    os.utime(path, (NOON, NOON))
    return path


def folder(path: Path, **more: bytes) -> Path:
    path.mkdir()
    (path / "tiny.ipynb").write_bytes(NOTEBOOK)
    for name, data in more.items():
        (path / name.replace("__", ".")).write_bytes(data)
    os.utime(path / "tiny.ipynb", (NOON, NOON))
    return path


def in_utc(when: int) -> bytes:
    return struct.pack("<HHBi", 0x5455, 5, 1, when)


HANDED = {
    "a file": (lambda drop: folder(drop / "ada"), "12:00:00"),
    "timestamp.txt": (lambda drop: folder(drop / "ada", timestamp__txt=AT_TEN), "10:00:00"),
    "another zone": (lambda drop: folder(drop / "ada", timestamp__txt=b"2026-03-01 10:00:00.5+09:00"), "01:00:00"),
    "an empty timestamp.txt": (lambda drop: folder(drop / "ada", timestamp__txt=b""), "12:00:00"),
    "a zip's entry": (lambda drop: dated(drop / "ada.zip", (2026, 3, 1, 20, 30, 4)), "11:30:04"),
    "in UTC": (lambda drop: dated(drop / "ada.zip", (2026, 3, 1, 1, 1, 0), in_utc(NOON - 60)), "11:59:00"),
    "a field cut short": (lambda drop: dated(drop / "ada.zip", (2026, 3, 1, 20, 0, 0), b"UT\1\0\1"), "11:00:00"),
    "a zip's timestamp.txt": (
        lambda drop: dated(drop / "ada.zip", (2026, 3, 1, 20, 30, 0), timestamp__txt=AT_TEN), "10:00:00",
    ),
    "a zip without times": (lambda drop: dated(drop / "ada.zip", (1980, 1, 1, 0, 0, 0)), "12:00:00"),
    "no date": (lambda drop: dated(drop / "ada.zip", (2026, 0, 0, 0, 0, 0)), "12:00:00"),
    "a tar's entry": (lambda drop: dated_tar(drop / "ada.tgz", f"{NOON - 1}"), "11:59:59"),
    "a tar without times": (lambda drop: dated_tar(drop / "ada.tgz", "0"), "12:00:00"),
    "a tar's nonsense": (lambda drop: dated_tar(drop / "ada.tgz", "nan"), "12:00:00"),
    "a tar's infinity": (lambda drop: dated_tar(drop / "ada.tgz", "1e300"), "12:00:00"),
}  # fmt: skip


@pytest.fixture
def tokyo(monkeypatch):
    """A clock nine hours before UTC's."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(("make", "when"), HANDED.values(), ids=HANDED)
def test_the_time_is_that_of_the_hand_in(root, drop, here, tokyo, make, when):
    make(drop)
    assert here(root, "collect", "tiny", str(drop)) == (0, "01_tiny: 1 collected into submitted/ (ada)\n", "")
    assert (root / "submitted/ada/01_tiny/timestamp.txt").read_text().strip() == f"2026-03-01 {when} UTC"


@pytest.mark.parametrize("text", [b"yesterday", b"\xff", b"9" * 30, b"2026 " * 50])
def test_a_timestamp_that_is_no_time_is_told(root, drop, here, text):
    folder(drop / "ada", timestamp__txt=text)
    code, out, err = here(root, "collect", "tiny", str(drop))
    assert code == 1 and ("1 collected" in out or "1 as they were" in out)
    assert re.fullmatch(
        r"\S+/ada/timestamp.txt: left out, it does not contain the time .* own time is used\. .*\n", err
    )
    assert (root / "submitted/ada/01_tiny/timestamp.txt").read_text() == "2026-03-01 12:00:00 UTC"


def test_a_timestamp_beside_several_students_is_nobodys(root, drop, here):
    for student in ("ada", "ben"):
        (drop / f"{student}_tiny.ipynb").write_bytes(NOTEBOOK)
        os.utime(drop / f"{student}_tiny.ipynb", (NOON, NOON))
    (drop / "timestamp.txt").write_bytes(AT_TEN)
    assert here(root, "collect", "tiny", str(drop))[0] == 0
    times = {path.read_text() for path in root.glob("submitted/*/01_tiny/timestamp.txt")}
    assert times == {"2026-03-01 12:00:00 UTC"}


def test_of_the_same_file_twice_the_earlier_time_counts(root, drop, here):
    folder(drop / "ada")
    dated(drop / "ada.zip", (2026, 3, 1, 1, 1, 0), in_utc(NOON - 60))
    assert here(root, "collect", "tiny", str(drop))[0] == 0
    assert (root / "submitted/ada/01_tiny/timestamp.txt").read_text() == "2026-03-01 11:59:00 UTC"


def test_a_late_submission_is_late_in_the_export(tmp_path, here, run):
    root, drop = make_course(tmp_path / "course"), tmp_path / "drop/ada"
    release(root)
    drop.mkdir(parents=True)
    shutil.move(hand_in(root, "x"), drop / "tiny.ipynb")
    shutil.rmtree(root / "submitted")
    done = run(root, "nbgrader", "db", "assignment", "add", "01_tiny", "--duedate", "2026-03-01 12:00 UTC")
    assert done.returncode == 0, done.stderr
    for when in (NOON - 3600, NOON + 3600):
        text = (drop / "tiny.ipynb").read_text()
        (drop / "tiny.ipynb").write_text(text.replace("return 2 * x", "return 2 * x + 0"))
        os.utime(drop / "tiny.ipynb", (when, when))
        assert here(root, "collect", "tiny", str(drop.parent))[0] == 0
        code, _, err = here(root, "grade", "tiny", "--workers", "1")
        assert (code, err) == (0, "")
        with Gradebook(f"sqlite:///{root}/gradebook.db", "custom-gradients") as gradebook:
            late = gradebook.find_submission("01_tiny", "ada").total_seconds_late
        assert late == max(0, when - NOON)
    assert run(root, "nbgrader", "export").returncode == 0
    line = (root / "grades.csv").read_text().splitlines()[1]
    assert line.startswith("01_tiny,2026-03-01 12:00:00,2026-03-01 13:00:00,ada,")


def test_nbgraders_own_command_unpacks_in_the_same_way(root, drop, run):
    archive = root / "downloaded/01_tiny/archive"
    shutil.rmtree(archive.parent, ignore_errors=True)
    archive.mkdir(parents=True)
    notebook = (root / "tiny.ipynb").read_bytes()
    a_zip(archive / "eve.zip", **{"../../../evil.ipynb": b"evil"})
    a_zip(archive / "ada.zip", **{"tiny.ipynb": notebook})
    done = run(root, "nbgrader", "zip_collect", "01_tiny", "--force")
    assert done.returncode == 0, done.stderr
    assert below(root / "submitted") == ["ada/01_tiny/timestamp.txt", "ada/01_tiny/tiny.ipynb"]
    assert not list(root.rglob("evil*"))
