"""Grades into the files of learning platforms, by their documented forms: there and back, nobody guessed."""

import csv
import io
from pathlib import Path

import pytest

from graders.classroom.errors import CourseError
from graders.classroom.gradefile import fill, read_table, roster_of
from graders.classroom.roster import Roster
from tests.path.course_maker import hand_in, make_course, release

SET = "01_relu"
PEOPLE = [
    {"id": "ada", "first_name": "Ada", "last_name": "Byron", "email": "ada@example.org", "lms_user_id": "101"},
    {"id": "ben", "first_name": "Ben", "last_name": "O'Brien", "email": "ben@example.org", "lms_user_id": "102"},
    {"id": "kim1", "first_name": "Kim", "last_name": "Roe", "email": "kim1@example.org", "lms_user_id": "103"},
    {"id": "kim2", "first_name": "Kim", "last_name": "Roe", "email": "kim2@example.org", "lms_user_id": "104"},
]
SCORES = {"ada": 20.0, "ben": 12.5, "kim1": 7.0, "kim2": None}
CANVAS = """\ufeff\
Student,ID,SIS User ID,SIS Login ID,Section,01 ReLU (9001),02 Sigmoid (9002),Assignments Current Score\r
    Points Possible,,,,,20,20,(read only)\r
"Byron, Ada",101,s-1,ada,"Lab ""A"", Monday",,5,25\r
"O'Brien, Ben",102,s-2,ben,Lab B,3,,\r
"Roe, Kim",103,s-3,kim1,Lab B,7.00,,\r
"Roe, Kim",104,s-4,kim2,Lab B,EX,,\r
"Student, Test",999,,f00,Lab B,,,\r
"""
MOODLE = """\
First name,Last name,ID number,Institution,Department,Email address,Assignment: 01 ReLU (Real),Course total (Real)
Ada,Byron,,,,ada@example.org,-,-
Ben,O'Brien,,,,ben@example.org,12.50,12.50
Kim,Roe,,,,kim1@example.org,-,-
Kim,Roe,,,,kim2@example.org,3,3
"""
WORKSHEET = """Identifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,Feedback comments
Participant 501,Ada Byron,ada@example.org,Submitted,,20.00,Yes,
Participant 502,Ben O'Brien,ben@example.org,Submitted,1.00,20.00,Yes,
Participant 503,Kim Roe,kim1@example.org,Submitted,,20.00,Yes,
Participant 504,Kim Roe,kim2@example.org,No submission,,20.00,Yes,
"""
BRIGHTSPACE = """\
OrgDefinedId,Username,Last Name,First Name,Email,\
01 ReLU Points Grade <Numeric MaxPoints:20 Weight:10>,End-of-Line Indicator
#s-1,#ada,Byron,Ada,ada@example.org,,#
#s-2,#ben,O'Brien,Ben,ben@example.org,12.5,#
#s-3,#kim1,Roe,Kim,kim1@example.org,,#
#s-4,#kim2,Roe,Kim,kim2@example.org,9,#
"""
FILES = {"Canvas": CANVAS, "Moodle": MOODLE, "Moodle's grading worksheet": WORKSHEET, "Brightspace": BRIGHTSPACE}


@pytest.fixture
def file(tmp_path):
    def write(text: str, name: str = "grades.csv") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return write


@pytest.mark.parametrize("platform", FILES)
def test_a_column_is_filled_and_all_else_stays(file, platform):
    text = FILES[platform]
    before = read_table(file(text))
    filled = fill(read_table(file(text)), SET, SCORES, 20.0, Roster(PEOPLE))
    assert filled.platform == platform and filled.lines == ()
    after = read_table(file(filled.text))
    place = after.header.index(filled.column)
    assert (after.delimiter, after.ending, after.mark) == (before.delimiter, before.ending, before.mark)
    assert after.header == before.header
    for old, new in zip(before.rows, after.rows, strict=True):
        assert [*old[:place], *old[place + 1 :]] == [*new[:place], *new[place + 1 :]]
    found = [row[place] for row in after.people()]
    assert list(map(float, found[:3])) == [20, 12.5, 7]
    assert found[3] == before.people()[3][place]  # not graded: as it was
    again = fill(after, SET, SCORES, 20.0, Roster(PEOPLE))
    assert (again.new, again.changed, again.same) == (0, 0, 3) and again.text == filled.text


@pytest.mark.parametrize("platform", FILES)
@pytest.mark.parametrize("quoted", [False, True])
def test_nothing_but_the_scores_is_written_otherwise(file, platform, quoted):
    """Quotes, blanks and line ends stay as the platform wrote them, also where it quotes what need not be."""
    text = FILES[platform]
    if quoted:
        rows = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
        out = io.StringIO()
        csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerows(rows)
        text = out.getvalue()
    filled = fill(read_table(file(text)), SET, SCORES, 20.0, Roster(PEOPLE))
    old, new = text.splitlines(keepends=True), filled.text.splitlines(keepends=True)
    assert sum(a != b for a, b in zip(old, new, strict=True)) == filled.new + filled.changed
    mark = '"' if quoted else ""
    assert len([line for line in new if f",{mark}20{mark}," in line]) >= 1
    assert filled.text.count('"') == text.count('"')
    fill(table := read_table(file(text)), SET, {}, 20.0, Roster(PEOPLE))
    assert table.text() == text


def test_odd_quotes_and_empty_lines_are_read_all_the_same(file):
    odd = MOODLE.replace("Ada,Byron,", 'A"d"a,Byron,', 1) + "\n"
    filled = fill(read_table(file(odd)), SET, SCORES, 20.0, Roster(PEOPLE))
    assert filled.text.splitlines()[0] == MOODLE.splitlines()[0]
    assert [row[6] for row in read_table(file(filled.text)).people()][:3] == ["20", "12.50", "7"]


def test_canvas_is_read_as_it_is_written(file):
    filled = fill(read_table(file(CANVAS)), SET, SCORES, 20.0, Roster(PEOPLE))
    assert (filled.new, filled.changed, filled.same) == (1, 1, 1)
    rows = list(csv.reader(io.StringIO(filled.text.removeprefix("\ufeff"), newline="")))
    assert rows[1][0] == "    Points Possible" and rows[2][4] == 'Lab "A", Monday' and rows[-1][0] == "Student, Test"


@pytest.mark.parametrize("platform", FILES)
def test_two_people_of_one_name_are_asked_for_and_not_guessed(file, platform):
    """Without numbers and addresses in the roster only names are left."""
    bare = [{key: row[key] for key in ("first_name", "last_name")} | {"id": f"x-{row['id']}"} for row in PEOPLE]
    scores = {f"x-{student}": score for student, score in SCORES.items()}
    table = read_table(file(FILES[platform]))
    place = fill(table, SET, {}, 20.0, Roster(bare)).column
    before = [row[table.header.index(place)] for row in table.people()]
    filled = fill(table, SET, scores, 20.0, Roster(bare))
    found = [row[table.header.index(place)] for row in table.people()]
    assert found[:1] + found[2:] == ["20", *before[2:]] and float(found[1]) == 12.5
    assert filled.lines == (
        *2 * ["Kim Roe may be any of x-kim1, x-kim2: put their numbers into students.csv."],
        "x-kim1 has 7 and no row in the file: enter it by hand.",
    )


def test_a_student_in_two_rows_is_not_filled(file):
    twice = MOODLE + "Ada,Byron,,,,ada@example.org,-,-\n"
    filled = fill(read_table(file(twice)), SET, SCORES, 20.0, Roster(PEOPLE))
    assert filled.lines == ("ada has 2 rows in the file: none was filled.",) and filled.new == 1


@pytest.mark.parametrize(
    ("text", "worth", "column", "message"),
    [
        (CANVAS.replace("01 ReLU", "Week 1"), 20.0, "", "no column is called as 01_relu: say which with --column NAME"),
        (CANVAS.replace("02 Sigmoid", "01 ReLU again"), 20.0, "", "several columns are called as 01_relu"),
        (CANVAS, 20.0, "Week 1 (3)", "the file has no column 'Week 1 (3)'"),
        (CANVAS, 10.0, "", "is worth 20 points in Canvas, and 01_relu 10"),
        (WORKSHEET, 10.0, "", "is worth 20 points in Moodle's grading worksheet, and 01_relu 10"),
        (BRIGHTSPACE, 10.0, "", "is worth 20 points in Brightspace, and 01_relu 10"),
    ],
)
def test_what_is_not_clear_is_refused(file, text, worth, column, message):
    with pytest.raises(CourseError) as error:
        fill(read_table(file(text)), SET, SCORES, worth, Roster(PEOPLE), column)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"name,points\nada,3\n", "has the columns of no gradebook that is known (name, points)"),
        (b"", "has the columns of no gradebook that is known ()"),
        ("Stüdent".encode("latin-1"), "it is not UTF-8"),
        (b'"' + b"x" * 200_000 + b'"\n', "field larger than field limit"),
    ],
)
def test_another_file_is_one_line(tmp_path, data, message):
    path = tmp_path / "grades.csv"
    path.write_bytes(data)
    with pytest.raises(CourseError) as error:
        read_table(path)
    assert message in str(error.value) and "export the gradebook as CSV" in str(error.value)


def test_another_column_by_its_name(file):
    table = read_table(file(CANVAS.replace("01 ReLU", "Week 1")))
    assert fill(table, SET, SCORES, 20.0, Roster(PEOPLE), "Week 1 (9001)").column == "Week 1 (9001)"


@pytest.mark.parametrize("platform", FILES)
def test_the_roster_of_a_file_finds_its_own_rows(file, platform):
    """Written, read, and used to fill the same file: everybody has one row."""
    table = read_table(file(FILES[platform]))
    rows = list(csv.DictReader(io.StringIO(roster_of(table))))
    assert len(rows) == 4 and {row["last_name"] for row in rows} == {"Byron", "O'Brien", "Roe"}
    filled = fill(table, SET, {row["id"]: 1.0 for row in rows}, 20.0, Roster(rows))
    assert filled.lines == () and filled.new + filled.changed + filled.same == 4


def test_two_people_with_one_id_are_refused(file):
    with pytest.raises(CourseError) as error:
        roster_of(read_table(file(CANVAS.replace("kim2", "kim1"))))
    assert "would both be 'kim1'" in str(error.value)


def test_the_commands(tmp_path, here, file):
    root = tmp_path / "course"
    root.mkdir()
    release(make_course(root))
    hand_in(root, "ada", double="def double(x):\n    return 2 * x", triple="def triple(x):\n    return 3 * x")
    hand_in(root, "eve", double="def double(x):\n    return 2 * x", triple="def triple(x):\n    return x")
    code, out, err = here(root, "grade", "tiny")
    assert code == 0, err
    export = file(CANVAS.replace("01 ReLU", "01 Tiny").replace("20,20,(", "6,20,("), "canvas.csv")
    code, out, err = here(root, "roster", str(export))
    assert code == 0 and out.startswith("students.csv: 4 students"), err
    code, _, err = here(root, "roster", str(export))
    assert code == 2 and "--force replaces it" in err
    code, out, err = here(root, "fill", "tiny", str(export))
    assert (code, err) == (1, "eve has 4 and no row in the file: enter it by hand.\n")
    assert (
        out
        == f"{export.with_name('canvas-filled.csv')}: '01 Tiny (9001)' for Canvas: 1 new, 0 changed, 0 as they were\n"
    )
    assert '"Byron, Ada",101,s-1,ada,"Lab ""A"", Monday",6,5,25' in export.with_name("canvas-filled.csv").read_text()
    code, _, err = here(root, "fill", "tiny", str(tmp_path / "none.csv"))
    assert code == 2 and "cannot be read (No such file or directory)" in err


def test_a_namesake_gets_no_grade(file):
    """A name counts only where no number and no address say that it is somebody else's."""
    namesake = '"Byron, Ada",999,,ada.b@example.com,Lab B,,,\r\n'
    both = fill(read_table(file(CANVAS + namesake)), SET, SCORES, 20.0, Roster(PEOPLE))
    rows = [row for row in csv.reader(io.StringIO(both.text, newline="")) if "Byron" in row[0]]
    assert [row[5] for row in rows] == ["20", ""]
    assert both.lines == (
        "Ada Byron in the file has another number or address than ada: left alone. If it is them, put that number or "
        "address into students.csv.",
    )
    alone = CANVAS.replace('"Byron, Ada",101,s-1,ada,"Lab ""A"", Monday",,5,25\r\n', "") + namesake
    filled = fill(read_table(file(alone)), SET, SCORES, 20.0, Roster(PEOPLE))
    assert filled.lines[-1] == "ada has 20 and no row in the file: enter it by hand."
    by_address = PEOPLE[0] | {"lms_user_id": ""}
    filled = fill(read_table(file(alone)), SET, SCORES, 20.0, Roster([by_address, *PEOPLE[1:]]))
    assert "ada has 20 and no row in the file: enter it by hand." in filled.lines


def test_another_set_s_column_is_not_written_over(file):
    with pytest.raises(CourseError, match="is called as 02_sigmoid, and its grades would be lost"):
        fill(read_table(file(CANVAS)), SET, SCORES, 20.0, Roster(PEOPLE), "02 Sigmoid (9002)", ["02_sigmoid"])


def test_a_name_with_a_comma_is_parted_there(file):
    text = CANVAS.replace("Byron, Ada", "van der Berg, Anna")
    assert "ada,Anna,van der Berg," in roster_of(read_table(file(text)))


def test_a_row_about_the_columns_is_nobody(file):
    text = CANVAS.replace("    Points Possible", ",,,,,Manual Posting,,\r\n    Points Possible").replace(
        "kim1,", "k@x.org,"
    )
    rows = list(csv.DictReader(io.StringIO(roster_of(read_table(file(text))))))
    assert [row["id"] for row in rows] == ["ada", "ben", "k@x.org", "kim2"]
    assert [row["email"] for row in rows] == ["", "", "k@x.org", ""]


def test_a_list_of_students_is_told_from_a_gradebook(file):
    with pytest.raises(CourseError, match=r"is a list of students already: copy it to students\.csv"):
        read_table(file("id,first_name,last_name,email\nada,Ada,Byron,a@x.org\n", "people.csv"))
