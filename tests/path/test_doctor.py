"""`python -m graders doctor`: it repairs what grading repairs, refuses what grading refuses, and loses nothing."""

import copy
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from nbgrader.converters import GenerateAssignment

from graders.classroom import checkup
from graders.classroom.course import Course
from graders.classroom.gradebook import Records
from graders.classroom.submission import MAX_FILES, Prepared, Refused, prepare
from graders.notebook import form
from graders.notebook.cells import Original, claimed, released
from graders.notebook.files import resembles
from tests.path.course_maker import ROOT, edit, hand_in, make_course
from tools import students
from tools.notebooks import read as read_committed

RIGHT = {"double": "def double(x):\n    return 2 * x", "triple": "def triple(x):\n    return 3 * x"}
MERGED = "<<<<<<< local\ndef double(x):\n    return 2 * x\n=======\ndouble = 2\n>>>>>>> remote\n"
ANSWERS = {"Square", "LeakyReLU", "Tanh"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A course, released by nbgrader, with another set beside it."""
    root = make_course(tmp_path_factory.mktemp("course"))
    text = (root / "solutions/01_tiny/tiny.ipynb").read_text(encoding="utf-8")
    (root / "solutions/02_other").mkdir()
    (root / "solutions/02_other/other.ipynb").write_text(re.sub("double|triple", r"other_\g<0>", text))
    course = Course(root)
    for name in course.assignments:
        course._convert(GenerateAssignment, assignment_id=name, student_id=".")
    return root


@pytest.fixture
def handed(root):
    """A right submission by Ada, alone in submitted/, with a time."""
    for name in ("submitted", ".doctor"):
        shutil.rmtree(root / name, ignore_errors=True)
    path = hand_in(root, "ada", **RIGHT)
    path.with_name("timestamp.txt").write_text("2026-02-02 12:00:00 UTC\n")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def cells(data):
    return {cell["metadata"].get("nbgrader", {}).get("grade_id"): cell for cell in data["cells"]}


def in_cell(name, **changed):
    return lambda data: cells(data)[name].update(changed)


def in_meta(name, **changed):
    return lambda data: cells(data)[name]["metadata"]["nbgrader"].update(changed)


def in_notebook(**changed):
    return lambda data: data.update(changed)


def kernel(name, language, info):
    """The kernel's name, the language of its kernelspec, that of language_info; None: it is not there."""
    spec = {"name": name, "display_name": "x"} | ({} if language is None else {"language": language})
    return in_notebook(metadata={"kernelspec": spec} | ({} if info is None else {"language_info": {"name": info}}))


def twice(data):
    data["cells"].insert(0, copy.deepcopy(cells(data)["test_double_value"]))
    data["cells"][0]["id"] = "first"


def deleted(*names):
    return lambda data: [data["cells"].remove(cells(data)[name]) for name in names]


def all_unmarked(data):
    for cell in data["cells"]:
        cell["metadata"] = {}
    data["cells"].insert(1, {**data["cells"][0], "id": "more"})


def to_text(data):
    cell = cells(data)["test_double_value"]
    del cell["outputs"], cell["execution_count"]
    cell |= {"cell_type": "markdown", "attachments": {"a.png": {"image/png": "aGk="}}}


def stranger(data):
    mine = {"cell_type": "code", "id": "mine", "source": "100", "outputs": [], "execution_count": None}
    meta = {**cells(data)["test_double_value"]["metadata"]["nbgrader"], "grade_id": "test_double_bonus", "points": 100}
    data["cells"].append({**mine, "metadata": {"nbgrader": meta}})


def same_ids(data):
    for cell in data["cells"]:
        cell["id"] = "same"


def no_ids(data):
    for cell in data["cells"]:
        del cell["id"]
    data["nbformat_minor"] = 2


def earlier(data):
    """A locked cell as an earlier release had it: another text, with the checksum of that."""
    cell = cells(data)["see_double"]
    cell["source"] = "print(double(0))"
    original = Original("see_double", "code", "", None, grade=False, solution=False, locked=True)
    cell["metadata"]["nbgrader"]["checksum"] = original.with_source(cell["source"]).checksum


def outputs(*found):
    return in_cell("double", outputs=list(found))


REPAIRED = {
    "a test cell deleted": (deleted("test_double_value"), "test cell test_double_value was deleted"),
    "a locked cell deleted": (deleted("see_triple"), "locked cell see_triple was deleted"),
    "the last cells deleted": (deleted("see_triple", "test_triple_value"), "test cell test_triple_value was deleted"),
    "all metadata gone": (all_unmarked, "see_double was deleted"),
    "a test cell twice": (twice, "cell test_double_value occurs more than once"),
    "a test cell retyped": (to_text, "test_double_value was turned into a markdown cell"),
    "an answer retyped": (in_cell("double", cell_type="raw"), "double was turned into a raw cell"),
    "a type unheard of": (in_cell("double", cell_type="heading"), "the form of cell"),
    "a type that is a list": (in_cell("see_double", cell_type=["code"]), "the form of cell"),
    "points": (in_meta("test_double_value", points=40), r"test_double_value were changed \(points 40 instead of 2"),
    "points without end": (in_meta("test_double_value", points=float("inf")), "points inf instead of 2"),
    "points that are a tree": (in_meta("test_double_value", points=[[["x" * 900]]]), "were changed"),
    "an answer locked": (in_meta("double", locked=True), "double were changed"),
    "an answer graded": (in_meta("double", grade=True, points=5), "double were changed"),
    "one for true": (in_meta("double", solution=1), "double were changed"),
    "an old schema": (in_meta("double", schema_version=1), "schema_version 1 instead of 3"),
    "a key more": (in_meta("double", **{"x\x1b[2J": 1}), "were changed"),
    "a stranger's cell": (stranger, "cell 'test_double_bonus' is not of this assignment"),
    "a name that is a list": (in_meta("see_double", grade_id=["see_double"]), "see_double was deleted"),
    "nbgrader null": (in_cell("see_double", metadata={"nbgrader": None}), "see_double was deleted"),
    "nbgrader a number": (in_cell("see_double", metadata={"nbgrader": 3}), "cell 'without a name' is not of this"),
    "metadata a list": (in_cell("see_double", metadata=[1, 2]), "the form of cell"),
    "metadata null": (in_cell("see_double", metadata=None), "the form of cell"),
    "tags that are a number": (
        lambda data: cells(data)["double"]["metadata"].update(tags=5, collapsed="yes"), "the form of cell",
    ),
    "a test cell not to be run": (
        lambda data: cells(data)["test_double_value"]["metadata"].update(tags=["skip-execution"]),
        "test_double_value has the tags 'skip-execution'",
    ),
    "locked text edited": (in_cell("see_double", source="print('mine')"), "locked cell see_double was changed"),
    "a test edited": (in_cell("test_double_value", source="2.0"), "locked cell test_double_value was changed"),
    "ids alike": (same_ids, "the id of cells 2, 3, 4, 5, 6, ... was"),
    "ids malformed": (in_cell("double", id="a b/../c"), "the id of cell 2 was"),
    "an id that is a list": (in_cell("double", id=["a"]), "the id of cell 2 was"),
    "ids missing, an older format": (no_ids, r"is in the older nbformat 4\.2"),
    "no minor version": (in_notebook(nbformat_minor=None), r"is in the older nbformat 4\.None"),
    "another kernel": (in_notebook(metadata={"kernelspec": {"name": "r\x1b", "display_name": "R"}}), "its kernel is"),
    "no kernel": (in_notebook(metadata={}), "it names no kernel"),
    "a kernel of Julia's own": (kernel("julia", "python", "python"), "its kernel is 'julia'"),
    "a kernel of Julia's own, without its language": (kernel("julia", None, "python"), "its kernel is 'julia'"),
    "a language that contains R": (kernel("python3", None, "rpy"), "its language is not Python. It is graded"),
    "languages of odd types": (kernel("python3", ["R"], {"name": "R"}), "its language is not Python"),
    "notebook metadata a list": (in_notebook(metadata=[]), "the notebook's metadata were malformed"),
    "a title that is a list": (lambda data: data["metadata"].update(title=[1], authors=3), "title is malformed"),
    "more than a notebook holds": (in_notebook(worksheets=[1]), "has worksheets besides its cells"),
    "a cell with more than it holds": (in_cell("double", prompt_number=[3]), "the form of cell"),
    "outputs that are none": (outputs("x", None, {"output_type": "stream"}, {"output_type": []}), "the form of cell"),
    "outputs a string": (in_cell("double", outputs="x" * 100), "the form of cell"),
    "a count that is a text": (in_cell("double", execution_count="x"), "the form of cell"),
    "attachments that are none": (lambda data: data["cells"][0].update(attachments=[1]), "the form of cell 1 was"),
}  # fmt: skip
UNTOUCHED = {
    "outputs with scripts": outputs(
        {"output_type": "display_data", "metadata": {}, "data": {"text/html": "<script>alert(1)</script>"}}
    ),
    "a huge output": outputs({"output_type": "stream", "name": "stdout", "text": "x" * 5_000_000}),
    "lab's own metadata": lambda data: cells(data)["see_double"]["metadata"].update(
        collapsed=True, jupyter={"outputs_hidden": True}, ExecuteTime={"end": "x"}
    ),
    "a cell of the student's own": lambda data: data["cells"].append(
        {"cell_type": "markdown", "id": "mine", "metadata": {"tags": ["mine"]}, "source": "text"}
    ),
    "a merge in a text": lambda data: data["cells"].append(
        {"cell_type": "markdown", "id": "mine", "metadata": {}, "source": MERGED}
    ),
    "marks of a merge in no order": in_cell(
        "double", source="text = '''\n>>>>>>> a\n=======\n<<<<<<< b\n'''\n" + RIGHT["double"]
    ),
    "an earlier release": earlier,
    "a checksum that is a list": in_meta("double", checksum=[1]),
}
BYTES = {
    "a byte-order mark": (lambda data: b"\xef\xbb\xbf" + data, "starts with a byte-order mark"),
    "UTF-16": (lambda data: data.decode().encode("utf-16"), "starts with a byte-order mark"),
    "Windows line ends": (
        lambda data: data.replace(b"\n", b"\r\n").replace(rb"x):\n", rb"x):\r\n"), "has Windows line endings",
    ),
    "half a character": (lambda data: data.replace(b"return 2 * x", rb"return 2 * x  # \ud83d"), "incomplete char"),
}  # fmt: skip


def damaged(path: Path, change) -> None:
    before = path.stat()
    edit(path, change)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def prepared(course, student="ada"):
    """What grading makes of a submission."""
    with Records(course) as records:
        return prepare(course.submission(student, "01_tiny"), records.released("01_tiny"))


def ready(course, student="ada"):
    """What grading would execute, and what tells it from another."""
    found = prepared(course, student)
    assert isinstance(found, Prepared), "grading refuses it"
    return {name: (json.loads(notebook.text), notebook.digest) for name, notebook in found.notebooks.items()}


def repairs(root, path, here, said):
    """Grading makes the same of a notebook before and after the doctor, and the doctor says what it did, once."""
    raw, info = path.read_bytes(), path.stat()
    course = Course(root)
    before = ready(course)

    code, out, err = here(root, "doctor", "submitted", "--dry-run")
    assert (code, err) == (0, "")
    assert path.read_bytes() == raw and not (root / ".doctor").exists()
    assert re.search(said or "", out), out
    left = [line for line in out.splitlines() if "the answer cell" in line]  # nothing can be done about it
    assert all(line.endswith("[would be repaired]") for line in out.splitlines()[:-1] if line not in left)
    assert all(line.isprintable() for line in out.splitlines())
    assert out.splitlines()[-1] == "1 of 1 submissions would be graded in their current state, 1 can be repaired."

    code, again, err = here(root, "doctor", "submitted/ada")
    assert (code, err) == (0, "")
    assert again.replace("[repaired]", "[would be repaired]").splitlines()[:-1] == out.splitlines()[:-1]
    (kept,) = (file for file in (root / ".doctor").rglob("*") if file.is_file())
    assert kept.read_bytes() == raw
    assert kept.parent == root / ".doctor/submitted/ada/01_tiny"
    assert (path.stat().st_mtime_ns, path.stat().st_mode) == (info.st_mtime_ns, info.st_mode)
    assert sorted(file.name for file in path.parent.iterdir()) == ["timestamp.txt", "tiny.ipynb"]
    nbformat.validate(json.loads(path.read_text(encoding="utf-8")))
    assert "HIDDEN" not in path.read_text(encoding="utf-8")

    last = here(root, "doctor", str(path))
    assert last == (0, "\n".join([*left, "1 of 1 submissions would be graded.\n"]), "")
    assert ready(course) == before


@pytest.mark.parametrize(("change", "said"), REPAIRED.values(), ids=REPAIRED)
def test_the_doctor_and_grading_repair_alike(root, handed, here, change, said):
    damaged(handed, change)
    repairs(root, handed, here, said)


@pytest.mark.parametrize(("change", "said"), BYTES.values(), ids=BYTES)
def test_the_doctor_and_grading_read_alike(root, handed, here, change, said):
    text = json.dumps(json.loads(handed.read_bytes()), indent=1, ensure_ascii=True)
    before = handed.stat()
    handed.write_bytes(change(text.encode()))
    os.utime(handed, ns=(before.st_atime_ns, before.st_mtime_ns))
    repairs(root, handed, here, said)


@pytest.mark.parametrize("change", UNTOUCHED.values(), ids=UNTOUCHED)
def test_what_is_not_wrong_is_left_alone(root, handed, here, change):
    damaged(handed, change)
    raw = handed.read_bytes()
    assert here(root, "doctor", "submitted") == (0, "1 of 1 submissions would be graded.\n", "")
    assert handed.read_bytes() == raw and not (root / ".doctor").exists()
    assert ready(Course(root))


# What cannot be repaired.


FOREIGN = "has a kernel for {}, and only Python is graded. In JupyterLab, choose Kernel, Change Kernel, Python 3"


MERGE = "holds the marks of an unresolved merge in {}. Keep one of the two versions, delete the marks"


def empty_cells(number):
    return [{"cell_type": "raw", "id": f"m{i}", "metadata": {}, "source": ""} for i in range(number)]


def not_a_dict(data):
    data["cells"][2] = ["code"]


def no_text(data):
    data["cells"][2]["source"] = {"a": 1}


def another_set(data):
    for name, cell in list(cells(data).items()):
        if name:
            cell["metadata"]["nbgrader"]["grade_id"] = f"other_{name}"


def nested(data):
    for _ in range(200):
        data["metadata"] = {"deeper": data["metadata"]}


REFUSED = {
    "200,000 cells": (lambda data: data["cells"].extend(empty_cells(200_000)), "has more than 10 MB"),
    "two thousand cells": (
        lambda data: data["cells"].extend(empty_cells(2000)),
        "has 2,00. cells; more than 1,000 are",
    ),
    "a cell that is a list": (not_a_dict, r"not a notebook \(cell 3 has no text\)"),
    "a text that is a tree": (no_text, r"not a notebook \(cell 3 has no text\)"),
    "another set": (another_set, "holds cells of another set .*and none of this one. Hand in the right one"),
    "nested deep": (nested, "nested deeper than 100 levels"),
    "no cells": (lambda data: data.pop("cells"), "it has no list of cells"),
    "cells a table": (in_notebook(cells={"a": 1}), "it has no list of cells"),
    "an empty list of cells": (in_notebook(cells=[]), "has no cells. Ask for a new one."),
    "cells with nothing in them": (
        in_notebook(cells=empty_cells(2)),
        "has no cell with anything in it. Ask for a new one.",
    ),
    "R": (kernel("ir", "R", "R"), FOREIGN.format("R")),
    "Julia": (kernel("julia-1.10", "julia", "julia"), FOREIGN.format("Julia")),
    "R by its kernelspec": (kernel("python3", "R", "python"), FOREIGN.format("R")),
    "Julia by its language": (kernel("python3", "python", "Julia"), FOREIGN.format("Julia")),
    "R by its kernel's name": (kernel("ir", None, None), FOREIGN.format("R")),
    "Julia by its kernel's name": (kernel("julia-1.10", None, None), FOREIGN.format("Julia")),
    "a merge in an answer": (in_cell("double", source=MERGED), MERGE.format("cell 2")),
    "a merge in two cells": (
        lambda data: [cells(data)[name].update(source=MERGED) for name in ("double", "triple")],
        MERGE.format("cells 2, 6"),
    ),
    "no format": (lambda data: data.pop("nbformat"), "it names no nbformat"),
    "a format that is true": (in_notebook(nbformat=True), "it names no nbformat"),
    "a format of the future": (in_notebook(nbformat=5), "is in nbformat 5, which is unknown here"),
    "a format that never was": (in_notebook(nbformat=2, worksheets=5), "is JSON but not a notebook"),
}
REFUSED_BYTES = {
    "nested without end": (b"[" * 3_000_000, "is nested too deeply"),
    "a number without end": (b'{"nbformat": ' + b"9" * 5_000 + b"}", "a number with thousands of digits"),
    "a million small cells": (b'{"nbformat":4,"cells":[' + b"0," * 1_000_000 + b"0]}", "has 1,000,001 cells"),
    "cut short": (b'{"cells": [', "is not JSON"),
    "nothing": (b"", "is not JSON"),
    "a list": (b"[1]", r"not a notebook \(list\)"),
    "Latin-1": ("{'é'}".encode("latin-1"), "is not text in UTF-8"),
    "a picture": (b"\x89PNG\r\n\x1a\n", "is not text in UTF-8"),
    "a merge": (b'{\n<<<<<<< mine\n"a": 1\n=======\n>>>>>>> theirs\n}', "the marks of an unresolved merge"),
    "too large": (b" " * 10_000_001, "has more than 10 MB. Clear its outputs"),
}


def linked(path):
    path.rename(path.parents[3] / "elsewhere.ipynb")
    path.symlink_to(path.parents[3] / "elsewhere.ipynb")


def hard_linked(path):
    (path.parents[3] / "other.ipynb").unlink(missing_ok=True)
    os.link(path, path.parents[3] / "other.ipynb")


def piped(path):
    path.unlink()
    os.mkfifo(path)


def plugged(path):
    path.unlink()
    before = os.getcwd()
    os.chdir(path.parent)  # the whole path is too long for a socket
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind(path.name)
    os.chdir(before)


def a_folder(path):
    path.unlink()
    path.mkdir()


def device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def aside(folder):
    other = folder.parents[2] / f"aside-{folder.name}"
    shutil.rmtree(other, ignore_errors=True)
    folder.rename(other)
    folder.symlink_to(other)


def many_files(path):
    for number in range(MAX_FILES + 1):
        path.with_name(f"{number}.txt").touch()


def deep_folders(path):
    path.parent.joinpath(*["d"] * (MAX_FILES + 1)).mkdir(parents=True)


def two_copies(path):
    shutil.copy(path, path.with_name("tiny (1).ipynb"))
    path.rename(path.with_name("tiny-Copy1.ipynb"))


FOLDERS = {
    "a symbolic link": (linked, "tiny.ipynb: is a symbolic link"),
    "a hard link": (hard_linked, "tiny.ipynb: is a hard link"),
    "a named pipe": (piped, "tiny.ipynb: is a named pipe"),
    "a socket": (plugged, "tiny.ipynb: is a socket"),
    "a folder": (a_folder, "tiny.ipynb: is a folder"),
    "a link to a device": (device, "tiny.ipynb: is a symbolic link"),
    "a link for the set": (lambda path: aside(path.parent), "01_tiny/: the folder is a symbolic link"),
    "a link for the student": (
        lambda path: aside(path.parents[1]), "ada: is a symbolic link|ada/: the folder is a symbolic link",
    ),
    "a link beside it": (lambda path: path.with_name("data").symlink_to("/etc"), "data: is a symbolic link"),
    "a pipe beside it": (lambda path: os.mkfifo(path.with_name("pipe")), "pipe: is a named pipe"),
    "a time that is a link": (lambda path: device(path.with_name("timestamp.txt")), "timestamp.txt: is a symbolic"),
    "many files": (many_files, "holds more than 200 files"),
    "folders without end": (deep_folders, "holds more than 200 files"),
    "two copies": (two_copies, "is missing; there are 'tiny.*' and 'tiny.*'. Rename the right one"),
    "a name of its own": (
        lambda path: path.rename(path.with_name("homework.ipynb")),
        "tiny.ipynb: is missing; there is 'homework.ipynb'. Ask for it",
    ),
    "nothing there": (lambda path: path.unlink(), "tiny.ipynb: is missing. Ask for it"),
}  # fmt: skip


def tree(root):
    """All below submitted/: names, kinds, links, contents."""
    found = {}
    for path in sorted((root / "submitted").rglob("*")):
        link = os.readlink(path) if path.is_symlink() else None
        found[str(path)] = link or (path.stat().st_mode, path.stat().st_mtime_ns, path.is_file() and path.read_bytes())
    return found


def refuses(root, here, said):
    """Grading refuses it too, in the same words; nobody else suffers and nothing is touched."""
    hand_in(root, "ben", **RIGHT).with_name("timestamp.txt").write_text("2026-02-02 12:00:00 UTC\n")
    before = tree(root)
    code, out, err = here(root, "doctor", "submitted")
    assert (code, err) == (1, "")
    assert all(line.isprintable() for line in out.splitlines())
    *lines, last = out.splitlines()
    assert any(re.search(said, line) for line in lines), out
    assert all(line.startswith("ada: ") for line in lines)
    assert "[repaired]" not in out
    assert re.match("1 of (1|2) submissions would be graded", last)
    assert tree(root) == before and not (root / ".doctor").exists()
    course = Course(root)
    found = prepared(course)
    assert isinstance(found, Refused) and any(problem.fatal for problem in found.problems)
    assert any(re.search(said, str(problem)) for problem in found.problems), found.problems
    assert ready(course, "ben")


@pytest.mark.parametrize(("change", "said"), REFUSED.values(), ids=REFUSED)
def test_the_doctor_and_grading_refuse_alike(root, handed, here, change, said):
    damaged(handed, change)
    refuses(root, here, said)


@pytest.mark.parametrize(("data", "said"), REFUSED_BYTES.values(), ids=REFUSED_BYTES)
def test_what_is_no_notebook_is_refused(root, handed, here, data, said):
    handed.write_bytes(data)
    refuses(root, here, said)


@pytest.mark.parametrize(("change", "said"), FOLDERS.values(), ids=FOLDERS)
def test_a_folder_is_refused(root, handed, here, change, said):
    change(handed)
    refuses(root, here, said)


# Files: names, times, what is beside the notebook.


@pytest.mark.parametrize(
    "name",
    ["Tiny.ipynb", "tiny (1).ipynb", "tiny-Copy1.ipynb", "tiny copy.ipynb", "tiny - Copy (2).ipynb", "TINY .ipynb",
     "tiny.ipynb.txt", "tiny.ipynb.json", "tiny.json", "work/tiny.ipynb", "tiny_copy2 (3).ipynb"],
)  # fmt: skip
def test_a_name_is_mended(root, handed, here, name):
    raw = handed.read_bytes()
    other = handed.parent / name
    other.parent.mkdir(exist_ok=True)
    handed.rename(other)
    assert isinstance(prepared(Course(root)), Refused)
    code, out, _ = here(root, "doctor", "submitted", "--dry-run")
    assert code == 1 and other.exists() and not handed.exists()
    code, out, _ = here(root, "doctor", "submitted")
    assert code == 0
    said = f"ada: 01_tiny/tiny.ipynb: is missing; there is {name!r} instead. It is renamed. [repaired]"
    assert out.splitlines()[0] == said
    assert handed.read_bytes() == raw and not other.exists()
    assert here(root, "doctor", "submitted")[1] == "1 of 1 submissions would be graded.\n"
    assert ready(Course(root))


@pytest.mark.parametrize(
    "name", ["tinyx.ipynb", "my tiny.ipynb", "tiny.py", "tiny.ipynb.zip", "tiny~.ipynb", "tin.ipynb", "tiny"]
)
def test_another_name_is_not_taken_for_it(name):
    assert not resembles("tiny.ipynb", name)


TIMES = {"words": b"yesterday, I think", "bytes": b"\xff\xfe\x00", "long": b"2026 " * 100_000,
         "an overflow": b"99999999999999999999999", "no date": b"2026-13-45 99:99:99 UTC"}  # fmt: skip


@pytest.mark.parametrize("text", TIMES.values(), ids=TIMES)
def test_a_time_is_mended(root, handed, here, text):
    path = handed.with_name("timestamp.txt")
    path.write_bytes(text)
    (problem,) = prepared(Course(root)).problems
    assert problem.fatal and "`python -m graders doctor submitted/ada/01_tiny` writes one" in problem.remedy
    assert here(root, "doctor", "submitted", "--dry-run")[0] == 1
    assert path.read_bytes() == text
    code, out, _ = here(root, "doctor", "submitted")
    assert code == 0
    assert (
        "timestamp.txt: does not contain the time" in out and "Written from the notebook's own time. [repaired]" in out
    )
    assert path.read_text() == "2023-11-14 22:13:20 UTC\n"
    assert [file.read_bytes() for file in (root / ".doctor").rglob("timestamp*")] == [text]
    assert here(root, "doctor", "submitted")[1] == "1 of 1 submissions would be graded.\n"


@pytest.mark.parametrize(
    "text", ["2026-02-02 12:00:00 UTC", "2026-02-02 12:00:00.123456 CET", "2026-02-02T12:00:00+01:00"]
)
def test_a_time_is_left_alone(root, handed, here, text):
    handed.with_name("timestamp.txt").write_text(text)
    assert here(root, "doctor", "submitted") == (0, "1 of 1 submissions would be graded.\n", "")


@pytest.mark.parametrize("state", ["missing", "empty"])
def test_a_time_that_is_missing_is_written(root, handed, here, state):
    handed.with_name("timestamp.txt").write_text("")
    if state == "missing":
        handed.with_name("timestamp.txt").unlink()
    before = tree(root)
    code, out, _ = here(root, "doctor", "submitted/ada", "--dry-run")
    assert code == 0 and tree(root) == before
    code, out, _ = here(root, "doctor", "submitted/ada/01_tiny")
    assert code == 0 and f"timestamp.txt: is {state}. Written from the notebook's own time. [repaired]" in out
    assert handed.with_name("timestamp.txt").read_text() == "2023-11-14 22:13:20 UTC\n"


def test_the_time_is_that_of_the_file_before_it_was_renamed(root, handed, here):
    handed.with_name("timestamp.txt").unlink()
    handed.rename(handed.with_name("Tiny.ipynb"))
    assert here(root, "doctor", "submitted")[0] == 0
    assert handed.with_name("timestamp.txt").read_text() == "2023-11-14 22:13:20 UTC\n"


def test_surplus_is_named_and_left(root, handed, here):
    handed.with_name("torch.py").write_text("x")
    handed.with_name("tiny-Copy1.ipynb").write_text("x")
    code, out, _ = here(root, "doctor", "submitted")
    assert code == 0
    assert out.count("is not part of the assignment. It is left out of grading and feedback.") == 2
    assert handed.with_name("torch.py").exists()


def test_strays_are_named(root, handed, here):
    shutil.copy(handed, root / "submitted/ada/tiny.ipynb")
    shutil.copytree(handed.parent, root / "submitted/ada/TINY")
    (root / "submitted/notes.txt").touch()
    (root / "submitted/eve").symlink_to("/etc")
    code, out, _ = here(root, "doctor", "submitted")
    assert code == 1
    for said in ("ada: TINY: is not a set. submitted/ada/01_tiny exists as well: keep the right one there.",
                 "ada: tiny.ipynb: is not in the folder of a set. submitted/ada/01_tiny/tiny.ipynb exists as well",
                 "notes.txt: notes.txt: is a file where a student's folder belongs", "eve: eve: is a symbolic link",
                 "1 of 1 submissions would be graded"):  # fmt: skip
        assert said in out, (said, out)


STRAYS = {  # place, how grading and the doctor begin their line on it
    "eva/Tiny": "eva: Tiny: is not a set. Rename it to 01_tiny.",
    "eva/my homework": "eva: my homework: is not a set. Rename it to 01_tiny.",
    "eva": "eva: tiny.ipynb: is not in the folder of a set. Move it into submitted/eva/01_tiny/.",
    "01_tiny/eva": "eva: 01_tiny/eva: has the set and student folders swapped. Move it to submitted/eva/01_tiny/.",
    "tiny/eva": "eva: tiny/eva: has the set and student folders swapped. Move it to submitted/eva/01_tiny/.",
    "tiny/ada": "ada: tiny/ada: has the set and student folders swapped. submitted/ada/01_tiny exists as well",
    "": "tiny.ipynb: tiny.ipynb: is a file where a student's folder belongs. A submission is submitted/STUDENT/SET/",
}


@pytest.mark.parametrize(("place", "said"), STRAYS.items())
def test_a_misplaced_submission_is_named_with_its_remedy(root, handed, here, place, said):
    folder = root / "submitted" / place
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(handed, folder / "tiny.ipynb")
    assert any(line.startswith(said) for line in here(root, "doctor", "submitted", "--dry-run")[1].splitlines())
    told = [f"{student}: {problem}" for student, problem in checkup.misplaced(Course(root), "01_tiny")]
    assert len(told) == 1 and told[0].startswith(said)
    assert checkup.misplaced(Course(root), "02_other") == []


def test_what_is_misplaced_and_of_no_set_is_named_where_it_is_a_notebook(root, handed):
    (root / "submitted/ada/notes").mkdir()
    (root / "submitted/ada/notes/notes.txt").touch()
    (root / "submitted/readme.txt").touch()
    (root / "submitted/fay").symlink_to(root / "submitted/ada")
    assert checkup.misplaced(Course(root), "01_tiny") == []
    shutil.copy(handed, root / "submitted/ada/notes/work.ipynb")
    for name in ("01_tiny", "02_other"):
        ((student, problem),) = checkup.misplaced(Course(root), name)
        assert (student, str(problem)) == ("ada", "notes: is not a set. The sets are 01_tiny, 02_other.")


def test_names_cannot_write_to_the_terminal(root, handed, here):
    evil = "x\n\x1b]0;title\x07\x9b2J\u202eada\udce9"
    handed.with_name(f"{evil}.py").touch()
    shutil.copytree(handed.parent, root / f"submitted/{evil}/01_tiny")
    edit(handed, in_meta("double", **{evil: evil}))
    edit(handed, in_meta("see_double", grade_id=evil))
    _, out, _ = here(root, "doctor", "submitted")
    assert all(line.isprintable() and len(line) < 800 for line in out.splitlines())
    assert out.count(r"x\n\x1b]0;title") >= 4
    handed.unlink()
    _, out, err = here(root, "grade", "tiny", "--no-sandbox")
    assert len(err.splitlines()) == 4 and all(line.isprintable() for line in (out + err).splitlines())


def test_answers_are_looked_at_and_never_run(root, handed, here, tmp_path):
    mark = tmp_path / "ran"
    source = f"open({str(mark)!r}, 'w')\ndef doubel(x):\n    %time pass\n    files = !ls\n    return 2 * x"
    edit(handed, in_cell("double", source=source))
    edit(handed, in_cell("triple", source="def triple(x)\n    return 3 * x"))
    code, out, _ = here(root, "doctor", "submitted")
    assert code == 0 and not mark.exists()
    assert "nothing is called double; there is 'doubel'. Its tests earn nothing: keep the name." in out
    assert "the answer cell triple is not Python (expected ':', line 1). It earns nothing." in out


@pytest.mark.parametrize("source", ["(" * 10**5, "-" * 10**5 + "1", "a" + ".b" * 50_000, "lambda:" * 10**4 + "1", "\0",
                                    "x = " * 10**4 + "1", "f'" + "{" * 10**4, "'" * 3, "x" * 10**6])  # fmt: skip
def test_a_source_that_breaks_the_parser_breaks_nothing(root, handed, here, source):
    edit(handed, in_cell("double", source=source))
    code, out, err = here(root, "doctor", "submitted")
    assert (code, err) == (0, "")
    assert re.search("the answer cell double is not Python|nothing is called double", out), out


def test_names_without_number_do_not_take_forever(root, handed, here):
    names = "".join(f"{'x' * 20}{number} = 1\n" for number in range(5000))
    edit(handed, in_cell("double", source=names))
    assert "nothing is called double" in here(root, "doctor", "submitted")[1]


def test_a_thousand_strangers_are_one_line(root, handed, here):
    meta = cells(json.loads(handed.read_text()))["test_double_value"]["metadata"]["nbgrader"]
    strangers = [cell | {"metadata": {"nbgrader": {**meta, "grade_id": cell["id"]}}} for cell in empty_cells(900)]
    edit(handed, lambda data: data["cells"].extend(strangers))
    _, out, _ = here(root, "doctor", "submitted")
    assert len(out.splitlines()) == 2
    assert "cells 'm0', 'm1', 'm2', 'm3', 'm4' and 895 more are not of this assignment" in out


def test_what_is_graded_is_not_graded_again_for_a_repair(root, handed, here):
    damaged(handed, deleted("test_double_value"))
    first = here(root, "grade", "tiny", "ada", "--no-sandbox")
    assert "1 of 1 submissions graded" in first[1] and "before" not in first[1]
    graded = (root / "autograded/ada/01_tiny/tiny.ipynb").read_bytes()
    assert here(root, "doctor", "submitted")[0] == 0
    code, out, err = here(root, "grade", "tiny", "ada", "--no-sandbox")
    assert (code, err) == (0, "") and "1 of them earlier" in out
    assert (root / "autograded/ada/01_tiny/tiny.ipynb").read_bytes() == graded
    assert Records(Course(root)).scores()[0]["ada"]["01_tiny"] == 6
    edit(handed, in_cell("double", source="def double(x):\n    return x"))
    assert "before" not in here(root, "grade", "tiny", "ada", "--no-sandbox")[1]
    assert Records(Course(root)).scores()[0]["ada"]["01_tiny"] == 2


def test_the_truth_is_the_gradebook_and_else_the_release(root, tmp_path, here):
    bare = tmp_path / "bare"
    shutil.copytree(root, bare, ignore=shutil.ignore_patterns("submitted", "gradebook.db", "autograded", ".doctor"))
    path = hand_in(bare, "ada", **RIGHT)
    edit(path, deleted("test_double_value"))
    assert "test cell test_double_value was deleted" in here(bare, "doctor", "submitted")[1]
    assert not (bare / "gradebook.db").exists()
    course, given = Course(root), released(form.read(bare / "exercises/01_tiny/tiny.ipynb")[0])
    of = checkup.ReleasedCells
    assert of(course).cells("01_tiny", "tiny") == of(Course(bare)).cells("01_tiny", "tiny") == given
    assert "BEGIN" not in path.read_text()


def test_nothing_kept_is_overwritten(root, handed, here):
    damages = []
    for name in ("test_double_value", "test_double_type", "see_double"):
        edit(handed, deleted(name))
        damages.append(handed.read_bytes())
        assert here(root, "doctor", "submitted")[0] == 0
    kept = [path.read_bytes() for path in (root / ".doctor").rglob("tiny.ipynb.*")]
    assert sorted(kept) == sorted(damages)


def test_a_link_in_the_place_of_what_is_kept_is_not_followed(root, handed, here, tmp_path):
    """What is written goes to new files; a damaged notebook stays as it was where nothing can be kept."""
    (root / ".doctor").write_text("a file")
    edit(handed, deleted("test_double_value"))
    before = handed.read_bytes()
    code, out, _ = here(root, "doctor", "submitted")
    (root / ".doctor").unlink()
    assert code == 1 and "cannot be repaired here" in out and handed.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere"], 2, "there is no nowhere"),
        ([], 2, "required: PATH"),
        (["nbgrader_config.py"], 1, "is not the name of a set's notebook"),
        (["submitted/ada/03_none"], 2, "there is no"),
    ],
)
def test_usage_errors(root, handed, here, arguments, code, said):
    got, out, err = here(root, "doctor", *arguments)
    assert got == code
    assert said in (out if code == 1 else err)


# A notebook by itself, before it is handed in.


def test_a_notebook_in_the_course_by_itself(root, handed, here, tmp_path):
    path = tmp_path / "Tiny (2).ipynb"
    shutil.copy(handed, path)
    edit(path, deleted("test_double_value"))
    raw = path.read_bytes()
    code, out, err = here(root, "doctor", str(path), "--dry-run")
    assert code == 1 and out.count("[would be repaired]") == 2 and "would NOT be graded" in out
    code, out, err = here(root, "doctor", str(path))
    assert (code, err) == (0, "")
    assert "is not called tiny.ipynb. It is renamed. [repaired]" in out and out.endswith("would be graded.\n")
    assert [file.read_bytes() for file in (tmp_path / ".doctor").iterdir()] == [raw]
    code, out, _ = here(root, "doctor", str(tmp_path))
    assert (code, out) == (0, f"{tmp_path}/tiny.ipynb: would be graded.\n")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The course's own download."""
    path = tmp_path_factory.mktemp("package") / "a.zip"
    students.write_zip(students.collect(ROOT), path)
    return path


@pytest.fixture
def download(package, tmp_path):
    with zipfile.ZipFile(package) as archive:
        archive.extractall(tmp_path)
    return tmp_path / students.NAME


def student(folder, *arguments, python=sys.executable):
    """What a student sees, with nothing but the standard library."""
    done = subprocess.run(
        [python, "-I", "-S", "doctor.pyz", *arguments], cwd=folder, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def test_as_downloaded_all_is_there_and_nothing_is_written(download):
    before = {path: path.read_bytes() for path in download.rglob("*") if path.is_file()}
    code, out, err = student(download, "exercises")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert sum(line.endswith(": would be graded.") for line in lines) == len(list(ROOT.glob("exercises/*/*.ipynb")))
    assert all(line.endswith(("still as it was given out. It earns nothing.", ": would be graded.")) for line in lines)
    assert {line.split()[4] for line in lines if line.startswith("relu.ipynb")} == ANSWERS
    assert {path: path.read_bytes() for path in download.rglob("*") if path.is_file()} == before


def test_without_a_path_it_looks_at_the_sets_beside_it(download, tmp_path):
    """From any folder, and without what is hidden: a checkpoint of JupyterLab's is not handed in."""
    sets = len(list(ROOT.glob("exercises/*/*.ipynb")))
    hidden = download / "exercises/.ipynb_checkpoints/relu.ipynb"
    hidden.parent.mkdir()
    hidden.write_text("{")
    edit(download / "exercises/03_ste/ste.ipynb", deleted("check_Binarize"))
    code, out, err = student(download)
    assert (code, err) == (0, "") and out.count(": would be graded.\n") == sets
    assert "locked cell check_Binarize was deleted" in out
    assert "exercises/10_flash_attention/flash_attention.ipynb: would be graded." in out.splitlines()
    (download / "exercises/01_relu/relu.ipynb").write_text("{")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    program = [sys.executable, "-I", "-S", download / "doctor.pyz"]
    done = subprocess.run(program, cwd=elsewhere, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout.count("be graded") == sets
    assert f"{download / 'exercises/01_relu/relu.ipynb'}: would NOT be graded" in done.stdout


@pytest.mark.parametrize("place", ["exercises", "exercises/01_relu"])
def test_without_a_path_it_looks_where_it_lies(download, place):
    shutil.move(download / "doctor.pyz", download / place)
    code, out, err = student(download / place)
    assert (code, err) == (0, "") and out.count(": would be graded.\n") == len(list(ROOT.glob(f"{place}/**/*.ipynb")))


def test_without_a_path_and_without_a_set_it_says_what_to_type(download, tmp_path):
    (tmp_path / "alone").mkdir()
    shutil.copy(download / "doctor.pyz", tmp_path / "alone")
    said = "there is no notebook of a set beside doctor.pyz: name one, or its folder\n"
    assert student(tmp_path / "alone") == (2, "", said)


def test_a_student_before_handing_in(download):
    path = download / "exercises/01_relu/relu.ipynb"
    edit(path, in_cell("Square", source="class Square:\n    pass"))
    edit(path, in_cell("LeakyReLU", source="class LeakyReLU\n    pass"))
    edit(path, in_cell("Tanh", source="class TanH:\n    pass"))
    edit(path, in_cell("relu-setup", source="import numpy as np"))
    edit(path, deleted("test_Tanh_value", "check_Tanh"))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    raw = path.read_bytes()
    code, out, err = student(download, "exercises/01_relu/relu.ipynb")
    assert (code, err) == (0, "")
    for said in ("byte-order mark", "test_Tanh_value was deleted. It is put back and graded. [repaired]",
                 "locked cell check_Tanh was deleted", "the locked cell relu-setup was changed",
                 "LeakyReLU is not Python (expected ':', line 1)", "is called Tanh; there is 'TanH'"):  # fmt: skip
        assert out.count(said) == 1, (said, out)
    assert "Square" not in out and out.splitlines()[-1] == "exercises/01_relu/relu.ipynb: would be graded."
    nbformat.validate(json.loads(path.read_text()))
    assert [file.read_bytes() for file in (path.parent / ".doctor").iterdir()] == [raw]
    given = {name: cell.source for cell in read_committed(ROOT / "exercises/01_relu/relu.ipynb").cells
                if (name := claimed(cell))}  # fmt: skip
    mine = {name: cell.source for cell in read_committed(path).cells if (name := claimed(cell))}
    assert mine.keys() == given.keys()
    assert {name for name in mine if mine[name] != given[name]} == ANSWERS


def test_a_converted_notebook_is_one_line(download):
    path = download / "exercises/01_relu/relu.ipynb"
    edit(path, lambda data: [cell.update(metadata={}) for cell in data["cells"]])
    code, out, _ = student(download, str(path))
    assert code == 0
    assert (
        "none of the set's own cells is marked as such, as after a conversion. All of them are added again at the end."
        in out
    )
    assert out.count("was deleted") == len(ANSWERS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: shutil.copy(path.parents[1] / "02_sigmoid/sigmoid.ipynb", path), "holds cells of another set"),
        (lambda path: path.write_text("{"), "is not JSON"),
        (lambda path: edit(path, kernel("ir", "R", "R")), f"relu.ipynb: {FOREIGN.format('R')}"),
        (lambda path: edit(path, in_cell("Square", source=MERGED)), f"relu.ipynb: {MERGE.format('cell 4')}"),
        (lambda path: edit(path, in_notebook(nbformat=3)), "is in the old nbformat 3: open and save it in JupyterLab"),
        (linked, "is a symbolic link"),
        (lambda path: shutil.copy(path, path.with_name("relu (1).ipynb")), "There is also 'relu.ipynb': hand in one"),
        (lambda path: path.rename(path.with_name("mine.ipynb")), "there is no notebook of a set in"),
    ],
)
def test_what_would_not_be_graded(download, change, said):
    change(download / "exercises/01_relu/relu.ipynb")
    code, out, err = student(download, "exercises/01_relu")
    assert code == (2 if err else 1)
    assert said in out + err
    assert bool(err) != ("would NOT be graded in its current state." in out)


def test_an_old_notebook_is_read_where_nbformat_is(handed):
    text = nbformat.writes(nbformat.convert(nbformat.read(handed, as_version=4), 3), version=3)
    notebook, problems = form.parse(text.encode(), "tiny.ipynb")
    assert problems[0].what == "is in the older nbformat 3.0"
    assert [cell["source"] for cell in notebook["cells"]] == [c.source for c in nbformat.read(handed, 4).cells]
