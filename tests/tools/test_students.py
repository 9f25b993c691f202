"""What students download: complete, readable alone, the same bytes twice, and nothing that is not theirs."""

import json
import re
import shutil
import zipfile

import pytest

from tests.tools import course
from tools import release, students
from tools.notebooks import ROOT, read, to_text, write

SECRET = re.compile(
    rb"HIDDEN TESTS|BEGIN SOLUTION|END SOLUTION|from graders(?! import coach  #)|import graders|"
    rb"python -m graders|gradebook"
)


CODE = {  # of the graders: what the coach imports, and what it does not
    "graders/__init__.py": "",
    "graders/__main__.py": "from graders import cli\n",
    "graders/cli.py": "from graders.classroom import grading\n",
    "graders/coach/__init__.py": "def coach():\n    from graders.judge import task\n",
    "graders/judge/__init__.py": "",
    "graders/judge/task.py": "import graders.inside.records\n",
    "graders/inside/__init__.py": "",
    "graders/inside/records.py": "",
    "graders/inside/testrun.py": "",
    "graders/inside/shell.py": "import graders.engine\n",
    "graders/classroom/grading.py": "",
    "graders/sets/relu/square.py": "from graders.judge.task import Task\n",
}


def make(root):
    """A small course with all that students get."""
    course.make(root)
    release.release(root)
    for page in students.PAGES:
        (root / f"book/{page}.md").write_text(f"# {page.title()}\n\n[The chapter](01_tiny.ipynb#tiny)\n")
    (root / "book/bibliography.md").write_text("# Bibliography\n\n```{bibliography}\n:all:\n```\n")
    (root / "book/references.bib").write_text("@misc{me2026, author={A. Me}, title={A work}, year={2026}}\n")
    (root / "book/checklist.py").write_text("ITEMS = {}\n")
    shutil.copy(root / "book/01_tiny.ipynb", root / "book/a_errors.ipynb")
    (root / "bench").mkdir()
    for name in ("gpu", "packages"):
        (root / f"book/{name}.json").write_text("{}\n")
    for name in ("kernels", "gpu", "wild"):
        (root / f"bench/{name}.py").write_text('"""Measures."""\n')
    for module, text in CODE.items():
        (root / module).parent.mkdir(parents=True, exist_ok=True)
        (root / module).write_text(text)
    for name in ("requirements.txt", "constraints.txt"):
        (root / name).write_text("torch==2.13.0\n")
    return root


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    root = make(tmp_path_factory.mktemp("small"))
    said = students.students(root)
    assert "custom-gradients.zip: 20 files" in said and "study.zip" in said
    return root


def unpack(folder, name, coach=False):
    """Unpack a download of the course's own in an empty folder."""
    students.write_zip(students.collect(ROOT, name, coach), folder / "a.zip", name)
    with zipfile.ZipFile(folder / "a.zip") as archive:
        archive.extractall(folder)
    return folder / name


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """What a class gets."""
    return unpack(tmp_path_factory.mktemp("student"), students.NAME)


@pytest.mark.parametrize(
    ("name", "coach", "site"), [(students.NAME, False, ""), (students.STUDY, True, "https://example.net/course/")]
)
def test_the_course_itself_passes_the_gate(name, coach, site):
    assert list(students.package_faults(students.collect(ROOT, name, coach, site), ROOT, coach)) == []


@pytest.mark.parametrize(("site", "said"), [("https://a.net/b/", "https://a.net/b/book/"), ("", "web page")])
def test_figures_that_move_have_the_address_of_the_book_or_say_nothing_of_it(site, said):
    files = students.collect(ROOT, site=site)
    chapters = [name for name in files if re.match(r"book/\d\d_", name)]
    moving = [name for name in chapters if b"data-figure" in (ROOT / name).read_bytes()]
    assert [name for name in chapters if said.encode() in files[name]] == (moving if site else [])
    assert len(moving) > 5


def test_pictures_that_the_page_moves_are_inside(unpacked):
    """The chapters are read in JupyterLab there, where the figure is a table."""
    pictures = {
        (path.stem, cell.id): [output.data.keys() for output in cell.outputs]
        for path in unpacked.glob("book/*.ipynb")
        for cell in read(path).cells
        if "remove-cell" in cell.metadata.get("tags", [])
    }
    assert {stem for stem, _ in pictures} >= {"01_relu", "02_sigmoid", "10_flash_attention"}
    assert [name for name, shown in pictures.items() if not any("image/svg+xml" in keys for keys in shown)] == []


def test_links_to_headings_lead_there_in_jupyterlab(unpacked):
    """Which knows "How it breaks" as How-it-breaks, where the book has how-it-breaks."""
    ids = {
        path.name: {
            words.replace("`", "").replace(" ", "-")
            for cell in read(path).cells
            if cell.cell_type == "markdown"
            for words in re.findall(r"^#{1,6} (.+?)\s*$", cell.source, re.MULTILINE)
        }
        for path in unpacked.glob("book/*.ipynb")
    }
    dead, count = [], 0
    for path in unpacked.glob("book/*.ipynb"):
        for cell in read(path).cells:
            for page, heading in re.findall(r"\]\((\w+\.ipynb)?#([^)]+)\)", cell.source):
                count += 1
                if heading not in ids[page or path.name]:
                    dead.append(f"{path.name}, {cell.id}: {page}#{heading}")
    assert count > 200 and dead == []


def test_a_file_of_the_coach_is_no_file_for_a_class(small):
    """Without being asked for, that is; and with it the gate looks for what does not run."""
    leaked = {"graders/sets/relu/square.py": b"# `make grade`\n"}
    (fault,) = students.package_faults(students.collect(small) | leaked, small)
    assert fault == "graders/sets/relu/square.py: not a file that students get"
    (fault,) = students.package_faults(students.collect(small, coach=True) | leaked, small, coach=True)
    assert fault == "graders/sets/relu/square.py: `make grade` is for who has the repository"


def test_inside_are_chapters_pages_exercises_and_requirements(unpacked):
    files = release.files(unpacked)
    chapters = {path.stem for path in ROOT.glob("book/[0-9][0-9]_*.ipynb")}
    assert {"README.md", "requirements.txt", "constraints.txt", "doctor.pyz"} <= files.keys()
    assert {f"book/{page}.md" for page in students.PAGES} <= files.keys()
    assert {f"book/{chapter}.ipynb" for chapter in chapters} <= files.keys()
    sets = {path.name for path in (ROOT / "exercises").iterdir() if path.is_dir()}
    assert {name.split("/")[1] for name in files if name.startswith("exercises/")} == sets > chapters
    assert {name.split("/")[0] for name in files if "/" in name} == {"bench", "book", "exercises"}


def test_a_cell_for_the_web_stays_there(unpacked):
    pages = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "book").glob("*.ipynb")]
    tagged = [cell for page in pages for cell in page["cells"] if students.WEB_TAG in cell["metadata"].get("tags", [])]
    inside = "".join(path.read_text(encoding="utf-8") for path in (unpacked / "book").glob("*.ipynb"))
    assert tagged and not [cell for cell in tagged if json.dumps(cell["source"][0]) in inside]


def test_inside_is_nothing_of_answers_or_graders(unpacked):
    files = release.files(unpacked)
    with zipfile.ZipFile(unpacked / "doctor.pyz") as program:
        files |= {name: program.read(name) for name in program.namelist()}
    assert {"doctor/doctor.py", "doctor/released.json"} <= files.keys()
    assert {name: match.group() for name, text in files.items() if (match := SECRET.search(text))} == {}


def test_links_between_files_resolve_where_it_was_unpacked(unpacked):
    seen = 0
    for path in unpacked.rglob("*"):
        if path.suffix not in (".ipynb", ".md"):
            continue
        cells = [] if path.suffix == ".md" else read(path).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown") or path.read_text()
        text = re.sub(r"`[^`\n]*`", "", text)  # `kernel[blocks](...)` is no link
        for target in re.findall(r"\]\(([^)#\s:]+)[^)\s:]*\)", text):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
            seen += 1
    assert seen > 20


def test_cited_works_have_their_place(unpacked):
    page = (unpacked / "book/bibliography.md").read_text()
    assert "```" not in page
    for chapter in unpacked.glob("book/*.ipynb"):
        for key in re.findall(r"bibliography\.md#(ref-\w+)", chapter.read_text()):
            assert f'<a id="{key}"></a>' in page, key


def test_the_same_course_gives_the_same_bytes(small):
    path = small / "students/custom-gradients.zip"
    first = path.read_bytes()
    shutil.copytree(small, small.with_name("again"), ignore=shutil.ignore_patterns("students"), dirs_exist_ok=True)
    students.students(small.with_name("again"))
    assert (small.with_name("again") / "students/custom-gradients.zip").read_bytes() == first
    folder = release.files(small / "students/custom-gradients")
    with zipfile.ZipFile(path) as archive:
        assert {name.removeprefix("custom-gradients/"): archive.read(name) for name in archive.namelist()} == folder


def chapter_says(text):
    def edit(root):
        path = root / "book/01_tiny.ipynb"
        notebook = read(path)
        notebook.cells[0].source += text
        write(path, to_text(notebook))

    return edit


def exercise_says(text):
    def edit(root):
        path = root / "exercises/01_tiny/tiny.ipynb"
        notebook = read(path)
        notebook.cells[1].source += text
        write(path, to_text(notebook))

    return edit


def output_says(root):
    path = root / "book/01_tiny.ipynb"
    write(path, path.read_text().replace('"1\\n"', '"python -m graders\\n"'))


def page_says(text):
    return lambda root: (root / "book/setup.md").write_text(f"# Setup\n\n{text}\n")


def file_in_exercises(name, text=b"x"):
    return lambda root: (root / "exercises/01_tiny" / name).write_bytes(text)


PLANTED = {
    "an answer as a file": (file_in_exercises("answers.py"), "answers.py: not a file that students get"),
    "bytes for a notebook": (file_in_exercises("other.ipynb", b"\xff\xfe"), "other.ipynb: not text"),
    "no notebook": (file_in_exercises("other.ipynb"), "other.ipynb: not a notebook"),
    "a set without a source": (
        lambda root: shutil.copy(root / "exercises/01_tiny/tiny.ipynb", root / "exercises/01_tiny/other.ipynb"),
        "no set of this name in solutions/",
    ),
    "an answer in an exercise": (exercise_says("\nreturn 2 * x * grad_output"), "a line of Square"),
    "a hidden test": (exercise_says('\ngrade("relu", "Square", "gradient", lambda: Square.apply)'), "a line of test_"),
    "a marker": (chapter_says("\n### BEGIN HIDDEN TESTS"), "01_tiny.ipynb, cell title: 'BEGIN HIDDEN TESTS'"),
    "the graders in a chapter": (chapter_says("\nfrom graders import grade"), "cell title: 'graders'"),
    "the graders in an output": (output_says, "01_tiny.ipynb, outputs: 'graders'"),
    "instructors' commands": (page_says("Run nbgrader autograde."), "setup.md: 'autograde'"),
    "the way to the answers": (page_says("See solutions/01_tiny."), "setup.md: 'solutions/'"),
    "a link out of the folder": (page_says("[x](../../secret.md)"), "links to ../../secret.md"),
    "a link to a page not there": (page_says("[x](instructors.md)"), "links to instructors.md"),
    "a link in HTML": (page_says('<a href="trust.html">x</a>'), "links to trust.html"),
    "a reference": (page_says("[x]\n\n[x]: trust.md"), "links to trust.md"),
    "a target of make": (page_says("This is measured by `make bench`."), "`make bench` is for who has the repository"),
    "a target of make to type": (page_says("```text\nmake bench\n```"), "make bench is for who has the repository"),
    "the web page without address": (chapter_says("\n\nOn the web page, move it."), "speaks of 'the web page' without"),
    "a module not there": (page_says("Type `python -m bench.grading`."), "'python -m bench.grading' does not run"),
    "a command not there": (
        page_says("`python -m graders grade relu`"),
        "setup.md: 'python -m graders grade' does not",
    ),
    "a program not there": (page_says("Type `python checkup.py`."), "there is no checkup.py"),
}


@pytest.mark.parametrize(("edit", "fault"), PLANTED.values(), ids=PLANTED)
def test_a_planted_file_or_text_keeps_the_old_download(edit, fault, small, tmp_path):
    root = tmp_path / "course"
    shutil.copytree(small, root)
    before = release.files(root / "students")
    edit(root)
    with pytest.raises(students.StudentsError, match=re.escape(fault)):
        students.students(root)
    assert release.files(root / "students") == before
    assert not list(root.glob(".students*"))


def test_a_planted_file_fails_the_look_inside(small, tmp_path):
    """The look inside is itself seen to fail: a package with a hidden test in it."""
    files = students.collect(small) | {"exercises/01_tiny/x.ipynb": b"### BEGIN HIDDEN TESTS"}
    students.write_zip(files, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert [name for name in archive.namelist() if SECRET.search(archive.read(name))] == [
            "custom-gradients/exercises/01_tiny/x.ipynb"
        ]


def test_the_gate_looks_into_the_students_program(small):
    inside = {"doctor/answers.py": b"### BEGIN SOLUTION", "doctor/released.json": b"nbgrader", "secret.txt": b""}
    files = students.collect(small) | {"doctor.pyz": students.zipped(inside)}
    assert list(students.package_faults(files, small)) == [
        "doctor.pyz/doctor/answers.py: 'BEGIN SOLUTION'",
        "doctor.pyz/doctor/released.json: 'nbgrader'",
        "doctor.pyz/secret.txt: not a file that students get",
    ]


def test_the_image_of_a_hub_copies_what_students_get_and_no_more(unpacked):
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    assert sources and all(source.startswith(f"students/{students.NAME}") for source in sources)
    for source in sources:
        assert (unpacked.parent / source.removeprefix("students/")).exists(), f"Dockerfile copies {source}"
    assert (ROOT / ".dockerignore").read_text().split() == ["*", f"!students/{students.NAME}"]


def test_a_wrong_word_on_the_command_line_writes_nothing(monkeypatch):
    monkeypatch.setattr(students, "students", lambda: pytest.fail("it wrote"))
    for arguments, code in ((["--help"], 0), (["--check"], 2)):
        with pytest.raises(SystemExit) as ended:
            students.main(arguments)
        assert ended.value.code == code
