"""Where the book's sources are, which pages it has, and how it is built."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
PAGES = [TOC["root"], *(entry["file"] for part in TOC["parts"] for entry in part["chapters"])]
SOURCES = ["_config.yml", "_toc.yml", "book", "exercises"]  # what the pages are made of
SOURCES += [
    "bench",
    "constraints.txt",
    "graders",
    "requirements.txt",
    "solutions",
    "tools",
]  # and what its downloads are


@dataclass(frozen=True)
class Build:
    """A build of the book: its exit status, what it printed, and the folder of its HTML."""

    status: int
    log: str
    html: Path


def read(book: Build, page: str) -> BeautifulSoup:
    """Return a built page, parsed once for all tests of a file: whoever changes something changes a copy."""
    path = book.html / f"{page}.html"
    return _parsed(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _parsed(path: Path, changed: int) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def copy_sources(tree: Path) -> None:
    """Copy what the build reads to ``tree``."""
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__"))
        else:
            shutil.copy(source, tree / name)


def build(tree: Path) -> Build:
    """Build the book in ``tree``, with a PATH that has nothing of the environment on it."""
    command = [Path(sys.executable).parent / "jupyter-book", "build", "-W", "--keep-going", "-n", "."]
    environment = os.environ | {"PATH": os.defpath, "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    return Build(done.returncode, done.stdout + done.stderr, tree / "_build" / "html")


def build_book(tree: Path) -> Build:
    """Build the book from a clean copy in ``tree``."""
    copy_sources(tree)
    return build(tree)
