"""Write ``book/checklist.py``: the cells of the list in ``book/e_checklist.ipynb``, joined into one file to download.

``graders/review/checklist.py`` is the same file, for `python -m graders review`.

python -m tools.checklist [--check]
"""

import argparse
import sys

from nbformat import NotebookNode

from tools.notebooks import ROOT, NotebookError, read, write

PAGE, FILE = ROOT / "book/e_checklist.ipynb", ROOT / "book/checklist.py"
COPY = ROOT / "graders/review/checklist.py"
HEAD = '''"""Review a torch.autograd.Function, one line for each question that a careful reviewer asks.

    from checklist import review

    x = torch.tensor([-2.0, 0.7], dtype=torch.float64, requires_grad=True)
    assert review(YourFunction.apply, x, reference=torch.relu, elementwise=True) == []

Needs torch alone. Written from the appendix "Checklist: review your Function" of the course "Custom Gradients in
PyTorch", which says what each item asks and shows what fails it.
"""
'''


def source(notebook: NotebookNode) -> str:
    """The list as a module: a docstring, and the cells that begin with ``# checklist: ``."""
    cells = [cell.source for cell in notebook.cells if cell.source.startswith("# checklist: ")]
    return f"{HEAD}\n" + "\n\n\n".join(cells) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Write the file, or say whether it is up to date."""
    parser = argparse.ArgumentParser(prog="python -m tools.checklist", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the file is not up to date")
    options = parser.parse_args(argv)
    try:
        text = source(read(PAGE))
    except (NotebookError, OSError) as error:
        print(f"book/e_checklist.ipynb: {error}", file=sys.stderr)
        return 1
    old = [file for file in (FILE, COPY) if not file.exists() or file.read_text(encoding="utf-8") != text]
    for file in old:
        name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.name
        if options.check:
            print(f"{name} is not what its page says: run `python -m tools.checklist`", file=sys.stderr)
        else:
            write(file, text)
            print(f"Wrote {name}")
    return int(options.check and bool(old))


if __name__ == "__main__":
    sys.exit(main())
