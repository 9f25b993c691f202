"""Downloads of Gradescope's: its list names the students, and only where it lies beside their folders."""

import zipfile
from pathlib import Path

import pytest

from tests.path.course_maker import hand_in, make_course, release

RIGHT = {"double": "def double(x):\n    return 2 * x", "triple": "def triple(x):\n    return 3 * x"}
LIST = """---
submission_1001:
  :submitters:
  - :name: Jane Doe
    :sid: '12345'
    :email: jane@x.edu
  :created_at: 2026-03-01 11:30:05.123456000 Z
  :score: 0.0
  :status: processed
  :history:
  - :id: 1000
    :created_at: 2026-02-27 10:00:00.000000000 Z
submission_1002:
  :submitters:
  - :name: Ben Bit
    :sid:
    :email: ben@x.edu
  :created_at: 2026-03-01 12:00:00.000000000 Z
submission_1003:
  :submitters:
  - :name: Cat Coe
    :email: cat@x.edu
  - :name: Dan Dee
    :email: dan@x.edu
  :created_at: 2026-03-01 12:00:00.000000000 Z
"""


@pytest.fixture
def course(tmp_path) -> Path:
    root = make_course(tmp_path / "course")
    release(root)
    return root


@pytest.fixture
def export(course, tmp_path) -> Path:
    """What *Export Submissions* gives, unpacked: jane's folder lies about its time, and names ben."""
    folder = tmp_path / "assignment_77_export"
    for number in (1001, 1002, 1003):
        place = folder / f"submission_{number}"
        place.mkdir(parents=True)
        hand_in(course, "maker", **RIGHT).rename(place / "tiny.ipynb")
    (folder / "submission_metadata.yml").write_text(LIST)
    (folder / "submission_1002/submission_metadata.yml").write_text("a: [")  # a student's, which nobody reads
    (folder / "submission_1001/timestamp.txt").write_text("2020-01-01 00:00:00 UTC\n")
    (folder / "submission_1001/submission_metadata.yml").write_text(LIST.replace("1001", "9").replace("1002", "1001"))
    (course / "submitted/maker/01_tiny").rmdir()
    (course / "submitted/maker").rmdir()
    return folder


def students(course: Path) -> dict[str, str]:
    """When whose notebook came in."""
    found = sorted((course / "submitted").glob("*/01_tiny/tiny.ipynb"))
    return {path.parts[-3]: (path.parent / "timestamp.txt").read_text().strip() for path in found}


WHEN = {"12345": "2026-03-01 11:30:05 UTC", "ben@x.edu": "2026-03-01 12:00:00 UTC"}


@pytest.mark.parametrize("how", ["folder", "archive", "archive of a folder"])
def test_each_is_the_students(course, export, here, tmp_path, how):
    given = ["--from", "gradescope", str(export)]
    if how != "folder":
        given[-1] = str(tmp_path / "download.zip")
        with zipfile.ZipFile(given[-1], "w") as archive:
            for path in sorted(export.rglob("*")):
                archive.write(path, path.relative_to(export if how == "archive" else tmp_path))
    code, out, err = here(course, "collect", "tiny", *given)
    assert students(course) == WHEN, out + err
    assert code == 1 and err.count("\n") == 1
    assert (
        "submission_1003: left out, it is from Cat Coe and Dan Dee. Put a copy into a folder of each one's name" in err
    )


def test_a_folder_needs_no_from(course, export, here):
    code, _, err = here(course, "collect", "tiny", str(export))
    assert students(course) == WHEN and code == 1 and err.count("\n") == 1


def test_the_list_of_students_is_asked(course, export, here):
    (course / "students.csv").write_text("id,first_name,last_name,email\njdoe,Jane,Doe,\nbbit,Ben,Bit,ben@x.edu\n")
    here(course, "collect", "tiny", "--from", "gradescope", str(export))
    assert students(course).keys() == {"jdoe", "bbit"}


def test_without_the_list_nobody_is_named(course, export, here):
    (export / "submission_metadata.yml").unlink()
    code, _, err = here(course, "collect", "tiny", "--from", "gradescope", str(export))
    assert students(course) == {} and code == 1
    assert err.count("Collect the whole download, with its submission_metadata.yml, or rename the folder") == 3


@pytest.mark.parametrize("text", ["- a", "a: [", "\0", "submission_1001: {':submitters': [3]}", "!!python/object:x {}"])
def test_a_list_that_is_none_is_a_line(course, export, here, text):
    (export / "submission_metadata.yml").write_text(text)
    code, _, err = here(course, "collect", "tiny", "--from", "gradescope", str(export))
    assert code == 1 and students(course) == {} and "Traceback" not in err


def test_a_students_own_list_names_nobody(course, export, here):
    """In a folder that says whose it is, a list of Gradescope's form is a file like any other."""
    (export / "submission_metadata.yml").unlink()
    (export / "submission_1001").rename(export / "mallory")
    (export / "mallory/submission_9").mkdir()
    (export / "mallory/tiny.ipynb").rename(export / "mallory/submission_9/tiny.ipynb")
    (export / "mallory/submission_metadata.yml").write_text(LIST.replace("1002", "9"))
    here(course, "collect", "tiny", str(export))
    assert students(course).keys() <= {"mallory"}
    (export / "mallory/submission_metadata.yml").write_text("a: [")
    assert "cannot be read" not in here(course, "collect", "tiny", str(export))[2]
