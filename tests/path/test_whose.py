"""Whose hand-in it is: no student hands in for another, nothing is lost, and each platform's names are understood."""

import os
import shutil
import struct
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from graders.classroom import archive as archives
from graders.classroom import bounded
from graders.classroom.archive import MAX_FILES, MAX_UNPACKED, ArchiveError, Budget, unpack
from graders.classroom.collect import REPLACED
from graders.classroom.platforms import PLATFORMS
from graders.classroom.roster import Roster
from graders.classroom.whose import Arrival, whose
from tests.path.course_maker import hand_in, make_course, release

TINY = "tiny.ipynb"
NOON = 1772366400  # 2026-03-01 12:00:00 UTC


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A course with the set 01_tiny."""
    root = make_course(tmp_path_factory.mktemp("course"))
    release(root)
    shutil.move(hand_in(root, "x"), root / TINY)
    return root


@pytest.fixture
def drop(root, tmp_path):
    """A folder of what came in; alice handed in before, nobody else."""
    for name in ("submitted", REPLACED):
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "students.csv").unlink(missing_ok=True)
    (tmp_path / "drop").mkdir()
    put(root / "submitted/alice/01_tiny" / TINY, b"alice's")
    (root / "submitted/alice/01_tiny/timestamp.txt").write_text("2026-03-01 12:00:00 UTC")
    return tmp_path / "drop"


def put(path: Path, data: bytes = b"another's", when: int = NOON + 60) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (when, when))
    return path


def a_zip(path: Path, files: dict[str, bytes], when: int = NOON + 60) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    os.utime(path, (when, when))
    return path


def alices(root: Path) -> bytes:
    return (root / "submitted/alice/01_tiny" / TINY).read_bytes()


def handed(root: Path) -> set[str]:
    return {path.parent.name for path in (root / "submitted").glob("*/01_tiny")}


IMPOSTORS = {
    "a folder in an archive": lambda drop: a_zip(drop / "mallory.zip", {f"alice/{TINY}": b"x"}),
    "a folder beside one's own": lambda drop: a_zip(drop / "mallory.zip", {f"alice/{TINY}": b"x", TINY: b"y"}),
    "a file's name in an archive": lambda drop: a_zip(drop / "mallory.zip", {f"alice_{TINY}": b"x"}),
    "an archive of the set's name": lambda drop: a_zip(drop / "01_tiny.zip", {f"alice/{TINY}": b"x"}),
    "an archive of the notebook's name": lambda drop: a_zip(drop / "tiny.zip", {f"alice/{TINY}": b"x"}),
    "an archive of the course's name": lambda drop: a_zip(drop / "exercises.zip", {f"alice_{TINY}": b"x"}),
    "an archive called as a folder of collect's": lambda drop: a_zip(drop / "~1.zip", {f"alice/{TINY}": b"x"}),
    "the same with a number": lambda drop: a_zip(drop / "0.zip", {f"alice/{TINY}": b"x"}),
    "a platform's name in an archive": lambda drop: a_zip(
        drop / "mallory.zip", {f"alice_1_assignsubmission_file_/{TINY}": b"x"}
    ),
    "an archive in an archive": lambda drop: a_zip(
        drop / "mallory.zip", {"alice.zip": a_zip(drop.parent / "alice.zip", {TINY: b"x"}).read_bytes()}
    ),
    "a folder in a folder": lambda drop: put(drop / "mallory/alice" / TINY),
    "an archive in a folder": lambda drop: a_zip(drop / "mallory/alice.zip", {TINY: b"x"}),
    "a file's name in a folder": lambda drop: put(drop / f"mallory/alice_{TINY}"),
    "Moodle's folder with an archive": lambda drop: a_zip(
        drop / "Mal Ory_2_assignsubmission_file_/alice.zip", {f"alice/{TINY}": b"x"}
    ),
    "other capitals": lambda drop: put(drop / "Alice" / TINY),
    "Cyrillic letters": lambda drop: put(drop / "\u0430lice" / TINY),
    "wide letters": lambda drop: put(drop / "\uff41lice" / TINY),
    "a backslash": lambda drop: a_zip(drop / "mallory.zip", {f"x\\..\\..\\alice\\{TINY}": b"x"}),
    "an archive with a backslash in its name": lambda drop: a_zip(drop / "mallory\\alice.zip", {TINY: b"x"}),
    "no name but an ending": lambda drop: a_zip(drop / ".zip", {f"alice/{TINY}": b"x"}),
    "the place of alice's folder": lambda drop: a_zip(drop / "alice~.tar.zip", {f"../alice/{TINY}": b"x"}),
}


@pytest.mark.parametrize("make", IMPOSTORS.values(), ids=IMPOSTORS)
@pytest.mark.parametrize("given", ["the folder", "itself"])
def test_nobody_hands_in_for_alice(root, drop, here, make, given):
    path = make(drop)
    typed = drop if given == "the folder" or path.parent != drop else path
    here(root, "collect", "tiny", str(typed))
    assert alices(root) == b"alice's"
    assert not (root / REPLACED).exists()
    looks = {name for name in handed(root) if name != "alice" and name.casefold() == "alice"}
    assert not looks and not [name for name in handed(root) if not name.isascii()]


def test_the_line_says_whose_archive_it_is(root, drop, here):
    a_zip(drop / "mallory.zip", {f"alice/{TINY}": b"x"})
    code, out, err = here(root, "collect", "tiny", str(drop / "mallory.zip"))
    assert (code, out) == (1, "01_tiny: 0 collected into submitted/\n")
    assert f"mallory.zip/alice/{TINY}: left out, it is in mallory's archive mallory, but a name in it says alice" in err


@pytest.mark.parametrize(
    ("files", "claims", "told"),
    [
        ([Arrival("a", ("bob", "homework"), (TINY,))], {"bob"}, 0),
        ([Arrival("a", ("Ann One_1_assignsubmission_file_", "hw"), (TINY,)),
          Arrival("b", ("Bob Two_2_assignsubmission_file_", "hw"), (TINY,))], {"Ann One", "Bob Two"}, 0),
        ([Arrival("a", ("Fay Six_3_assignsubmission_file_", "Fay_Six_tiny"), (TINY,))], {"Fay Six"}, 0),
        ([Arrival("a", ("Jane Doe_1_assignsubmission_file_", "week1", TINY)),
          Arrival("b", ("Kim Roe_2_assignsubmission_file_", "hw"), ("week1", TINY))], {"Jane Doe", "Kim Roe"}, 0),
        ([Arrival("a", ("ada_tiny",), (TINY,)), Arrival("b", ("ben-01_tiny",), (TINY,))], {"ada", "ben"}, 0),
        ([Arrival("a", ("01_tiny", "exercises", "ada", TINY))], {"ada"}, 0),
        ([Arrival("a", ("class", "ada", TINY)), Arrival("b", ("class", "ben", TINY))], set(), 1),
        ([Arrival("a", ("Jane Doe_1_assignsubmission_file_", TINY)),
          Arrival("b", ("Jane Doe_2_assignsubmission_file_", TINY))], set(), 2),  # two people of one name
        ([Arrival("a", ("Ada",), (TINY,)), Arrival("b", ("ada",), (TINY,))], set(), 2),
    ],
)  # fmt: skip
def test_the_outermost_name_says_it(files, claims, told):
    got, lines = whose(files, "01_tiny", ["tiny"], set())
    assert ({student for _, student, _ in got}, len(lines)) == (claims, told), lines


NAMED = [
    ("canvas", "doejane_12345_678901_tiny.ipynb", "doejane"),
    ("canvas", "doejane_LATE_12345_678901_tiny.ipynb", "doejane"),
    ("canvas", "doejane_12345_678901_01_tiny-3.ipynb", "doejane"),
    ("moodle", f"O'Brien Pat_12345_assignsubmission_file_/{TINY}", "O'Brien Pat"),
    ("moodle", f"Jane Doe_12345_assignsubmission_file_{TINY}", "Jane Doe"),
    ("blackboard", f"01 Tiny_jdoe_attempt_2026-03-01-10-00-00_{TINY}", "jdoe"),
    ("brightspace", f"12345-67890 - Jane Doe - Mar 1, 2026 1000 AM/{TINY}", "Jane Doe"),
    ("brightspace", f"12345-67890 - Jane Doe - Mar 1, 2026 1000 AM - {TINY}", "Jane Doe"),
    ("sakai", f"Doe, Jane(jdoe)/Submission attachment(s)/{TINY}", "jdoe"),
    ("github", f"01-tiny-janedoe/{TINY}", "janedoe"),
    ("folders", f"janedoe/{TINY}", "janedoe"),
]


@pytest.mark.parametrize(("platform", "name", "student"), NAMED)
def test_a_platforms_names(platform, name, student):
    for said in {platform, platform if platform in ("github", "folders") else None}:
        got, lines = whose([name], "01_tiny", ["tiny"], set(), platform=said)
        assert ([claim[1:] for claim in got], lines) == ([(student, "tiny")], [])


def test_every_example_is_of_its_platforms_form():
    for key, platform in PLATFORMS.items():
        name = platform.example if platform.example.endswith(".ipynb") else f"{platform.example}/relu.ipynb"
        got, lines = whose([name], "01_relu", ["relu"], set(), platform=key)
        assert len(got) == 1 and not lines


def test_the_last_attempt_is_taken():
    first, late = "doejane_1_22_tiny.ipynb", "doejane_LATE_1_33_tiny-1.ipynb"
    got, lines = whose([late, first], "01_tiny", ["tiny"], set(), same=lambda *_: False)
    assert got == [(late, "doejane", "tiny")]
    assert lines == [f"{first}: left out, {late} is doejane's tiny.ipynb and was handed in later"]


def test_another_platforms_names_are_refused():
    got, lines = whose([f"submission_1001/{TINY}"], "01_tiny", ["tiny"], set(), platform="canvas")
    assert not got and "is not named as Canvas names one (doejane_12345_678901_relu.ipynb)" in lines[0]


def test_a_download_that_another_platform_wrote_says_whose_it_is(root, drop, here):
    """The first line leads to the command that works, and not back to the one before."""
    with zipfile.ZipFile(drop / "all.zip", "w") as archive:
        archive.write(root / TINY, "doejane_12345_678901_tiny.ipynb")
    code, _, err = here(root, "collect", "tiny", str(drop / "all.zip"), "--from", "moodle")
    assert code == 1 and "Canvas names it so: collect it with --from canvas" in err
    assert here(root, "collect", "tiny", str(drop / "all.zip"), "--from", "canvas")[1].endswith("(doejane)\n")


def test_gradescope_s_numbers_are_nobody_without_a_roster():
    for name in (f"submission_1001/{TINY}", "submission_1001_tiny.ipynb"):
        got, lines = whose([name], "01_tiny", ["tiny"], set())
        assert not got and "is Gradescope's number of a hand-in, and names nobody" in lines[0]
    taken = [{"id": "submission_1001"}]
    assert whose([f"submission_1001/{TINY}"], "01_tiny", ["tiny"], set(), roster=Roster(taken))[0]


ROSTER = [
    {"id": "jdoe", "first_name": "Jane", "last_name": "Doe", "email": "jane@x.org", "lms_user_id": "777"},
    {"id": "alice", "first_name": "Alice", "last_name": "O'Brien"},
    {"id": "kim1", "first_name": "Kim", "last_name": "Roe"},
    {"id": "kim2", "first_name": "Kim", "last_name": "Roe"},
]


@pytest.mark.parametrize(
    ("file", "student"),
    [
        (f"jdoe/{TINY}", "jdoe"),
        (f"JDoe/{TINY}", "jdoe"),
        (f"Jane Doe/{TINY}", "jdoe"),
        ("doejane_12_34_tiny.ipynb", "jdoe"),
        ("anybody_777_34_tiny.ipynb", "jdoe"),
        (f"jane@x.org/{TINY}", "jdoe"),
        (f"Alice O’Brien_3_assignsubmission_file_/{TINY}", "alice"),
        (f"homework/{TINY}", None),
        (f"\u0430lice/{TINY}", None),
        (f"Kim Roe/{TINY}", None),
        (f"kim2/{TINY}", "kim2"),
    ],
)
def test_names_are_held_against_the_roster(file, student):
    got, lines = whose([file], "01_tiny", ["tiny"], {"homework"}, roster=Roster(ROSTER))
    assert [claim[1] for claim in got] == ([student] if student else [])
    assert len(lines) == (not student)


def test_an_unknown_student_is_a_line(root, drop, here):
    (root / "students.csv").write_text("id,first_name,last_name\nalice,Alice,Liddell\nbob,Bob,\n")
    put(drop / "bob" / TINY)
    put(drop / "homework" / TINY)
    code, out, err = here(root, "collect", "tiny", str(drop))
    assert (code, out) == (1, "01_tiny: 1 collected into submitted/ (bob)\n")
    remedy = "Rename the folder, or add them to students.csv"
    assert err == f"{drop}/homework/{TINY}: left out, there is no student 'homework' in the course. {remedy}\n"
    (root / "students.csv").write_text("name\nalice\n")
    code, _, err = here(root, "collect", "tiny", str(drop))
    assert code == 2 and "students.csv does not say who is in the course: it needs a first line with id" in err


def test_a_list_as_a_spreadsheet_writes_it_and_a_download_without_its_platform(root, drop, here):
    (root / "students.csv").write_text("\ufeffid;first_name;last_name\r\nalice;Alice;Liddell\r\nbob;Bob;\r\n")
    a_zip(drop / "submissions.zip", {"doebob_12_34_tiny.ipynb": b"bob's"})
    put(drop / "bob" / TINY)
    code, out, err = here(root, "collect", "tiny", str(drop))
    assert (code, out) == (1, "01_tiny: 1 collected into submitted/ (bob)\n")
    assert "there is no student 'submissions' in the course" in err
    assert err.endswith("; a platform's download of all hand-ins needs --from PLATFORM\n")


@pytest.mark.parametrize("listed", [True, False])
def test_a_whole_download_without_its_platform_is_one_line(root, drop, here, listed):
    if listed:
        (root / "students.csv").write_text("id,first_name,last_name\nalice,Alice,Liddell\nbob,Bob,Doe\n")
    names = ("liddellalice_11_33_tiny.ipynb", "doebob_12_34_tiny.ipynb", "doebob_LATE_12_35_tiny-1.ipynb")
    path = a_zip(drop / "submissions.zip", dict.fromkeys(names, b"a notebook"))
    code, out, err = here(root, "collect", "tiny", str(path))
    what = "its 3 notebooks are named as Canvas names what a class handed in"
    assert (code, err) == (1, f"{path}: left out, {what}. Collect it with --from canvas\n")
    assert out == "01_tiny: 0 collected into submitted/\n"


def test_a_download_of_a_class(root, drop, here):
    inner = a_zip(drop / "inner.zip", {TINY: b"bob's"}).read_bytes()
    path = a_zip(
        drop / "homework.zip",
        {
            f"Ann One_1_assignsubmission_file_/{TINY}": b"ann's",
            "Bob Two_2_assignsubmission_file_/homework.zip": inner,
            "Cy Three_3_assignsubmission_onlinetext_/onlinetext.html": b"",
        },
    )
    code, out, err = here(root, "collect", "tiny", "--from", "moodle", str(path))
    assert (code, err, out) == (0, "", "01_tiny: 2 collected into submitted/ (Ann One, Bob Two)\n")
    code, out, err = here(root, "collect", "tiny", str(path))
    assert code == 1 and "0 collected" in out


def test_what_is_replaced_is_named_and_kept(root, drop, here):
    put(drop / "alice" / TINY, b"newer")
    code, out, err = here(root, "collect", "tiny", str(drop))
    assert (code, err) == (0, "")
    kept = f"{REPLACED}/alice/01_tiny/2026-03-01_120000"
    assert out.splitlines()[0] == (
        "alice's 01_tiny: the hand-in of 2026-03-01 12:00:00 UTC is replaced by that of 2026-03-01 12:01:00 UTC; "
        f"it is kept in {kept}/"
    )
    assert ((root / kept / TINY).read_bytes(), alices(root)) == (b"alice's", b"newer")
    assert here(root, "collect", "tiny", str(drop)) == (
        0,
        "01_tiny: 0 collected into submitted/; 1 as they were\n",
        "",
    )  # the same again


def test_an_older_file_never_replaces_a_newer_one(root, drop, here):
    put(drop / "alice" / TINY, b"older", NOON - 60)
    code, out, err = here(root, "collect", "tiny", str(drop))
    assert (code, alices(root)) == (1, b"alice's") and "0 collected" in out
    said = "it is of 2026-03-01 11:59:00 UTC, older than what was handed in at 2026-03-01 12:00:00 UTC"
    assert f"{drop}/alice/{TINY}: left out, {said}. To take it all the same, use --older\n" == err
    code, _, err = here(root, "collect", "tiny", "--older", str(drop))
    assert (code, err, alices(root)) == (0, "", b"older")
    assert [path.read_bytes() for path in (root / REPLACED).rglob(TINY)] == [b"alice's"]


def test_the_same_file_again_keeps_its_time(root, drop, here):
    put(drop / "alice" / TINY, b"alice's", NOON + 9999)
    code, out, err = here(root, "collect", "tiny", str(drop))
    assert (code, err) == (0, "") and "the same came in again" in out
    assert (root / "submitted/alice/01_tiny/timestamp.txt").read_text() == "2026-03-01 12:00:00 UTC"


def test_a_time_in_the_future_is_not_believed(root, drop, here):
    put(drop / "bob" / TINY, when=int(time.time()) + 10**8)
    code, _, err = here(root, "collect", "tiny", str(drop))
    assert code == 1 and "is in the future; the time of collection is used instead" in err
    assert (root / "submitted/bob/01_tiny/timestamp.txt").read_text()[:4] == time.strftime("%Y", time.gmtime())


def test_a_linked_folder_is_not_written_through(root, drop, here):
    (drop.parent / "elsewhere/01_tiny").mkdir(parents=True)
    (root / "submitted/bob").symlink_to(drop.parent / "elsewhere")
    put(drop / "bob" / TINY)
    code, _, err = here(root, "collect", "tiny", str(drop))
    assert code == 1 and "submitted/bob is not a folder" in err
    assert not list((drop.parent / "elsewhere").rglob("*.ipynb"))


@pytest.fixture
def rule(root):
    path = root / "nbgrader_config.py"
    before = path.read_text()
    regexp = r'r".*/(?P<student_id>[^/]+)_try_\d+_(?P<file_id>\w+)"'
    path.write_text(f"{before}\nc.FileNameCollectorPlugin.named_regexp = {regexp}\n")
    yield
    path.write_text(before)


def test_the_instructors_own_rule(root, drop, here, rule):
    put(drop / "bob_try_3_tiny.ipynb")
    put(drop / ".._try_3_tiny.ipynb")
    put(drop / "cy_try_3_other.ipynb")
    put(drop / "cy.ipynb")
    a_zip(drop / "mallory_try_1_x.zip", {"alice_try_4_tiny.ipynb": b"x"})
    code, out, err = here(root, "collect", "tiny", str(drop))
    assert (code, out) == (1, "01_tiny: 1 collected into submitted/ (bob)\n")
    assert alices(root) == b"alice's" and len(err.splitlines()) == 4
    for said in ("'..' is not a valid student name", "not 'other'", "named_regexp does not fit its path",
                 "named_regexp finds the student 'alice' where the student chose the name"):  # fmt: skip
        assert said in err


# --- limits ---


def many_names(path: Path) -> Path:
    """A tar of 500 GNU long names in a row, which tarfile follows by calling itself."""
    long = tarfile.TarInfo("././@LongLink")
    long.type, long.size = tarfile.GNUTYPE_LONGNAME, 2
    block = long.tobuf(tarfile.GNU_FORMAT) + b"x\0".ljust(512, b"\0")
    path.write_bytes(block * 500 + tarfile.TarInfo(TINY).tobuf() + b"\0" * 1024)
    return path


def test_an_exception_is_a_line_about_one_archive(root, drop, here):
    many_names(drop / "mallory.tar")
    put(drop / "zoe" / TINY)
    code, out, err = here(root, "collect", "tiny", str(drop))
    assert (code, out) == (1, "01_tiny: 1 collected into submitted/ (zoe)\n")
    assert err.startswith(f"{drop}/mallory.tar: left out, it is damaged or not an archive (RecursionError")
    assert len(err.splitlines()) == 1


def far_end(path: Path, entries: int, comment: bytes) -> Path:
    """A zip whose list says the same name many times, before a comment."""
    start = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 33, 0, 0, 0, 1, 0) + b"a"
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, 0, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    size, number = len(entry) * entries, entries & 0xFFFF
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, number, number, size, len(start), len(comment)) + comment
    path.write_bytes(start + entry * entries + end)
    return path


@pytest.mark.parametrize("comment", [b"", b"x" * 65_530, b"x" * 65_535])
def test_a_zips_list_is_measured_where_zipfile_finds_it(tmp_path, comment, monkeypatch):
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_: pytest.fail("it was read"))  # in the child: no such line then
    with pytest.raises(ArchiveError, match="it has more than 2,000 files"):
        unpack(far_end(tmp_path / "a.zip", 100_000, comment), tmp_path / "out")


def test_folders_of_a_tar_count(tmp_path):
    folder = tarfile.TarInfo("d")
    folder.type = tarfile.DIRTYPE
    path = tmp_path / "a.tar"
    path.write_bytes(folder.tobuf(tarfile.USTAR_FORMAT) * 3000)
    with pytest.raises(ArchiveError, match="it has more than 2,000 files"):
        unpack(path, tmp_path / "out")


def test_archives_in_an_archive_share_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_ONE", 100_000)
    inner = a_zip(tmp_path / "inner.zip", {f"{i}.txt": b"\0" * 9_000 for i in range(3)}).read_bytes()
    path = a_zip(tmp_path / "a.zip", {f"i{i:02}.zip": inner for i in range(20)})
    budget = Budget(MAX_UNPACKED, MAX_FILES)
    told = unpack(path, tmp_path / "out", budget).left_out
    size = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert size <= 100_000 and any("would unpack to more" in line for line in told)
    assert budget.taken[0] <= 100_000


def test_all_that_is_collected_shares_one_budget(root, drop, here, monkeypatch):
    monkeypatch.setattr("graders.classroom.collect.MAX_UNPACKED", 100_000)
    for number in range(9):
        a_zip(drop / f"s{number}.zip", {TINY: b"\0" * 30_000})
    code, out, err = here(root, "collect", "tiny", *map(str, sorted(drop.iterdir())))
    assert code == 1 and "3 collected into submitted/ (s0, s1, s2)" in out
    assert err.count("would unpack to more than 0 MB, which is what all that was collected before it leaves") == 6


def test_what_is_left_out_of_an_archive_is_told_briefly(tmp_path):
    path = a_zip(tmp_path / "a.zip", {f"/{number}": b"" for number in range(1000)})
    told = unpack(path, tmp_path / "out").left_out
    assert len(told) == 21 and told[-1] == "...: left out, 980 more files"


def forever() -> None:
    while True:
        pass


GREEDY = {
    "time": (forever, "takes more than 1 seconds of a processor"),
    "sleep": (lambda: time.sleep(99), "takes more than 3 seconds to read"),
    "memory": (lambda: len(bytearray(10**9)), "needs more memory"),
    "death": (lambda: os._exit(3), "cannot be read"),
    "disk": (lambda: Path("/tmp/graders-large").write_bytes(b"x" * 10**6), "File too large"),
    "recursion": (lambda: (lambda f: f(f))(lambda f: f(f)), "RecursionError"),
    "no JSON": (lambda: object(), "not JSON serializable"),
}  # fmt: skip


@pytest.mark.parametrize(("function", "said"), GREEDY.values(), ids=GREEDY)
def test_a_bounded_call_comes_back(function, said):
    start = time.monotonic()
    try:
        with pytest.raises(bounded.BoundedError, match=said):
            bounded.call(function, cpu=1, memory=200_000_000, size=10_000, wall=3 if "to read" in said else 15)
    finally:
        Path("/tmp/graders-large").unlink(missing_ok=True)
    assert time.monotonic() - start < 60
    assert bounded.call(len, "four", cpu=1, memory=10**8, size=0, wall=9) == 4
