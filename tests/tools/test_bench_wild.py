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


def failures() -> dict[tuple[str, str], set[str]]:
    """The items that each Function failed; a row's name says after a comma what it was tried with."""
    found: dict[tuple[str, str], set[str]] = {}
    for row in WILD["rows"]:
        found.setdefault((row["package"], row["function"].partition(",")[0]), set()).update(row["failed"])
    return found


def test_the_page_counts_them() -> None:
    assert len(PINS) == 18 and len(failures()) == 39
    assert f"{len(failures())} Functions of eighteen packages" in PAGE
    clean = sum(not items for items in failures().values())
    assert f"{clean} of the {len(failures())} Functions failed nothing" in PAGE
    counted = next("".join(o.text for o in cell.outputs) for cell in CELLS if cell.id == "table-count")
    assert counted.startswith(f"18 packages, {len(failures())} Functions\nnothing failed: {clean} Functions\n")


def test_the_picture_of_the_packages_says_the_same_in_words() -> None:
    failed = Counter(item for items in failures().values() for item in items)
    said = ALT["packages-figure"].partition("Functions failed it: ")[2].rstrip(".").split(", ")
    counts = [int(part.rpartition(" ")[2]) for part in said]
    assert {*said} == {f"{item} {count}" for item, count in failed.items()} and counts == sorted(counts, reverse=True)
    clean = sum(not items for items in failures().values())
    assert f"{clean} green ticks and {len(failures()) - clean} grey crosses" in ALT["packages-figure"]


def test_the_page_quotes_the_numbers() -> None:
    numbers = WILD["numbers"]["gpytorch"]
    assert f"{numbers['RBFCovariance, second derivative']:.4f} here" in PAGE
    assert f"should be {numbers[PLAIN]:.4f}" in PAGE
    assert f"off by {numbers['LogNormalCDF, largest error']:.4f} at most" in PAGE
    ours, right = numbers["LogNormalCDF at -2, second derivative of its square"], numbers["the same of log_ndtr"]
    assert f"is {ours:.4f}, where `log_ndtr` gives {right:.4f}" in PAGE
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
