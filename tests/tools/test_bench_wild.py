"""What page i says of other packages is what the last run of `bench.wild` wrote."""

import json
from collections import Counter

import nbformat

from bench.wild import OUT, PINS, ROOT, by_sort, conjugate, hard_sigmoid, normal, torch

WILD = json.loads(OUT.read_text(encoding="utf-8"))
PLAIN = "the same of torch's operations"
CELLS = nbformat.read(ROOT / "book/i_wild.ipynb", 4).cells
PAGE = "\n".join(cell.source for cell in CELLS)
ALT = {cell.id: cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "") for cell in CELLS}


def test_every_package_was_reviewed_in_its_pinned_version() -> None:
    assert dict.fromkeys(row["package"] for row in WILD["rows"]).keys() == PINS.keys()
    assert {row["package"]: row["version"] for row in WILD["rows"]} == PINS
    assert f"torch=={WILD['torch']}" in (ROOT / "requirements.txt").read_text(encoding="utf-8")


def test_every_row_was_run_to_its_end() -> None:
    assert all(row["passed"] >= 10 and "runs" not in row["failed"] for row in WILD["rows"])


def test_the_page_counts_them() -> None:
    assert f"{len(WILD['rows'])} Functions of eighteen packages" in PAGE
    assert len(PINS) == 18
    clean = sum(not row["failed"] for row in WILD["rows"])
    assert f"{clean} of the {len(WILD['rows'])} Functions failed nothing" in PAGE


def test_the_picture_of_the_packages_says_the_same_in_words() -> None:
    failed = Counter(item for row in WILD["rows"] for item in row["failed"])
    said = ALT["packages-figure"].partition("Functions failed it: ")[2].rstrip(".").split(", ")
    assert said == [f"{item} {count}" for item, count in failed.most_common()]
    clean = sum(not row["failed"] for row in WILD["rows"])
    assert f"{clean} green ticks and {len(WILD['rows']) - clean} red crosses" in ALT["packages-figure"]


def test_the_page_quotes_the_numbers() -> None:
    numbers = WILD["numbers"]["gpytorch"]
    assert f"{numbers['RBFCovariance, second derivative']:.4f} here" in PAGE
    assert f"should be {numbers[PLAIN]:.4f}" in PAGE
    assert f"off by {numbers['LogNormalCDF, largest error']:.4f} at most" in PAGE
    at_minus_2 = (numbers[key] for key in ("LogNormalCDF at -2, second derivative", "the same of log_ndtr"))
    assert "is {:.4f}, where `log_ndtr` gives {:.4f}".format(*at_minus_2) in PAGE
    (rows,) = WILD["numbers"]["entmax"].values()
    for row in rows.values():
        assert row["rows with nan"] == row["rows with nan, entmax_bisect"] == row["rows with a zero"]
        assert row["gradcheck"]


def test_a_second_term_hides_what_the_adjoint_loses() -> None:
    adjoint, plain = (
        WILD["numbers"]["torchdiffeq"][f"second derivatives with the cubes of y in the loss, {name}"]
        for name in ("odeint_adjoint", "odeint")
    )
    cubes = torch.tensor([6 * 0.5, 6 * -0.3])  # of the other term alone
    torch.testing.assert_close(torch.tensor(adjoint), cubes)
    assert not torch.tensor(plain).allclose(cubes)


def test_the_references_are_right() -> None:
    x = normal(3, 5)
    torch.testing.assert_close(torch.autograd.grad(conjugate(x).sum(), x)[0], by_sort(x))
    torch.testing.assert_close(by_sort(x).sum(-1), torch.ones(3, dtype=x.dtype))
    torch.testing.assert_close(hard_sigmoid(x), torch.nn.functional.hardsigmoid(x))
