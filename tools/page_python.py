"""The Python of the pages as one classic script: MicroPython, the page's torch, and what runs a cell.

``python -m tools.page_python FILE.js`` writes it. A page that is opened from a file can load a script, nothing else:
so the runtime is in it as text, and the WebAssembly in base64. What is vendored stays as it came (`VENDORED`); the two
things in it that a classic script may not have are taken out here.
"""

import base64
import hashlib
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "book" / "_page"
VENDORED = {  # of @micropython/micropython-webassembly-pyscript 1.27.0; see book/_page/micropython/README.md
    "micropython.mjs": "c2be87e7ba24e3b47d133022b009a66bff07f4720aa23d816d216ef8cc47014c",
    "micropython.wasm": "06338c955b03c5700aa0069015d3e392d76836ef8e2ce25bedbe59b88ccd373c",
}


def checked(name: str) -> bytes:
    """Return a vendored file.

    Raises:
        ValueError: it is not the file that was vendored.
    """
    data = (PAGE / "micropython" / name).read_bytes()
    if hashlib.sha256(data).hexdigest() != VENDORED[name]:
        raise ValueError(f"book/_page/micropython/{name} is not the file of version 1.27.0: its hash is another")
    return data


def runtime() -> str:
    """Return MicroPython's module as a classic script, which sets ``micropython`` to a promise of what loads it."""
    text = checked("micropython.mjs").decode()
    for found, put in (
        ("import.meta.url", '""'),
        ("}export default _createMicroPythonModule;", "}"),
        ("export async function", "\nasync function"),
    ):
        text = text.replace(found, put)
    if "import.meta" in text or re.search(r"[;}\n]export\b", text):
        raise ValueError("micropython.mjs has more of a module than is taken out")
    return "self.micropython = (async () => {\n" + text + "\nreturn loadMicroPython; })();\n"


def python_files() -> dict[str, str]:
    """Return the Python that the runtime imports, by path; a shim, which is a module of Python's, by its name."""
    paths = [PAGE / "cell.py", *sorted((PAGE / "torch").rglob("*.py"))]
    files = {path.relative_to(PAGE).as_posix(): path for path in paths}
    files |= {path.name: path for path in sorted((PAGE / "shims").glob("*.py"))}
    return {name: path.read_text(encoding="utf-8") for name, path in files.items()} | {"torch/_names.py": names()}


def names() -> str:
    """Return torch's own names as a file of the page's torch: what is none of them has torch's error, not a refusal."""
    import torch
    import torch.nn.functional

    owners = {
        "torch": torch,
        "torch.autograd": torch.autograd,
        "torch.linalg": torch.linalg,
        "torch.nn.functional": torch.nn.functional,
        "torch.special": torch.special,
        "Tensor": torch.Tensor,
    }
    known = {owner: [name for name in dir(thing) if not name.startswith("_")] for owner, thing in owners.items()}
    known["torch"] += [
        "backends",
        "compiler",
        "export",
        "func",
        "fx",
        "onnx",
        "utils",
    ]  # loaded when they are asked for
    lines = [f"    {owner!r}: {' ' + ' '.join(sorted(set(found))) + ' '!r}," for owner, found in known.items()]
    return "\n".join(["NAMES = {", *lines, "}", ""])


def bundle(more: dict[str, str] | None = None) -> str:
    """Return the script; ``more`` are further files that Python finds, by path."""
    data = {
        "runtime": runtime(),
        "worker": (PAGE / "worker.js").read_text(encoding="utf-8"),
        "wasm": base64.b64encode(checked("micropython.wasm")).decode(),
        "files": python_files() | (more or {}),
    }
    script = (PAGE / "page.js").read_text(encoding="utf-8")
    return script.replace("PAGE_DATA", json.dumps(data).replace("</", "<\\/"), 1)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(bundle(), encoding="utf-8")
