"""The first page's map, losses and list are those of the chapters and of the page's own code."""

import re
import shutil
from pathlib import Path

import pytest

from tools import first_page
from tools.notebooks import ROOT


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """The four files as they should be, by name."""
    return {path.name: text for path, text in first_page.first_page().items()}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The chapters and the first page in a folder of their own."""
    (tmp_path / "book").mkdir()
    for path in [
        *ROOT.glob("book/[0-9]*.ipynb"),
        *(ROOT / "book" / name for name in ("intro.md", "map.svg", "bump.svg", "floats.svg")),
    ]:
        shutil.copy(path, tmp_path / "book")
    return tmp_path


def test_the_committed_files_are_up_to_date(files: dict[str, str]) -> None:
    for name, text in files.items():
        assert first_page.same((ROOT / "book" / name).read_text(encoding="utf-8"), text), (
            f"{name}: python -m tools.first_page"
        )


def test_what_a_right_gradient_pays_is_what_chapter_10_measured() -> None:
    chapter = (ROOT / "book/10_flash_attention.ipynb").read_text(encoding="utf-8")
    kept = {name: int(re.search(rf"{name} .*-> +(\d+), slope", chapter)[1]) for name in ("plain", "skeleton")}
    page = " ".join((ROOT / "book/intro.md").read_text(encoding="utf-8").split())
    assert "lengths, floats, slopes = [256, 512, 1024, 2048, 4096]" in chapter and "4,096 tokens" in page
    assert f"autograd keeps {kept['plain'] / 1e6:.1f} million numbers" in page
    assert f"torch keeps {kept['skeleton'] / 1e6:.1f} million" in page


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        ("01_relu.ipynb", "**Time:** 75 minutes", "**Time:** 65 minutes", {"map.svg", "intro.md"}),
        (
            "09_checkpointing.ipynb",
            "[Chapter 6](06_linear.ipynb)",
            "[Chapter 3](03_ste.ipynb)",
            {"map.svg", "intro.md"},
        ),
        ("intro.md", "lr=0.01", "lr=0.02", {"bump.svg", "intro.md"}),
        ("intro.md", "</b> exercises", "0</b> exercises", {"intro.md"}),
        ("intro.md", 'data-forgotten="', 'data-forgotten="-99.0 ', {"intro.md"}),
        ("floats.svg", "17.2 million", "17.1 million", {"floats.svg"}),
        ("intro.md", "difficulty 5 of 5", "difficulty 4 of 5", {"intro.md"}),
    ],
)
def test_what_is_out_of_date_is_named_then_mended(copy: Path, capfd, file: str, old: str, new: str, named: set) -> None:
    path = copy / "book" / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert first_page.main(["--check"], copy) == 1
    assert set(re.findall(r"book/(\S+) is out of date", capfd.readouterr().err)) == named
    assert first_page.main([], copy) == 0
    assert first_page.main(["--check"], copy) == 0


def test_a_chapter_that_the_page_does_not_list_is_a_line(copy: Path, capfd) -> None:
    path = copy / "book/intro.md"
    path.write_text(
        path.read_text(encoding="utf-8").replace("10. [FlashAttention]", "10. [Flash]  ["), encoding="utf-8"
    )
    assert first_page.main(["--check"], copy) == 1
    assert capfd.readouterr().err.startswith("book/intro.md lists")


@pytest.mark.parametrize(
    ("file", "old", "new", "line"),
    [
        ("intro.md", "x = torch.tensor(", "x = torch.tenser(", "book/intro.md: its code stops with AttributeError"),
        ("intro.md", "def train(bump):", "def train(bump:", "book/intro.md: its code stops with SyntaxError"),
        ("intro.md", "by_hand = train", "by_heart = train", "book/intro.md: its code stops with NameError"),
        ("05_clipped_relu.ipynb", "**Time:**", "**Hours:**", "book/05_clipped_relu.ipynb: the second cell is"),
    ],
)
def test_what_the_author_has_to_mend_is_one_line(copy: Path, capfd, file: str, old: str, new: str, line: str) -> None:
    path = copy / "book" / file
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    assert first_page.main([], copy) == 1
    said = capfd.readouterr().err
    assert said.startswith(line) and said.count("\n") == 1


def test_an_arrow_stands_for_each_need_that_does_not_follow_from_others() -> None:
    needs = {"1": [], "2": ["1"], "3": ["1", "2"], "4": ["1"], "5": ["2", "3", "4"]}
    assert first_page.arrows(needs) == [("1", "2"), ("2", "3"), ("1", "4"), ("3", "5"), ("4", "5")]


def test_each_chapter_lies_below_what_it_needs_in_a_place_of_its_own() -> None:
    chapters = first_page.cards(ROOT)
    edges = first_page.arrows({name: card.needs for name, (_, card) in chapters.items()})
    at = first_page.places(list(chapters), edges)
    assert len(set(at.values())) == len(chapters) == 10
    assert all(at[need][0] < at[chapter][0] for need, chapter in edges)
    assert (
        not [  # no arrow runs straight through a chapter
            (need, chapter, other)
            for need, chapter in edges
            for other in at
            if at[need][1] == at[other][1] == at[chapter][1] and at[need][0] < at[other][0] < at[chapter][0]
        ]
    )


def test_a_pixel_is_let_pass_and_no_more(files: dict[str, str]) -> None:
    drawing = files["bump.svg"]
    x, y = re.search(r'points="([\d.]+),([\d.]+) ', drawing).groups()
    for shift, passes in ((0.9, True), (1.2, False)):
        assert first_page.same(drawing, drawing.replace(f"{x},{y} ", f"{x},{float(y) + shift:.1f} ", 1)) is passes
    assert not first_page.same(drawing, drawing.replace("forgotten", "lost"))
