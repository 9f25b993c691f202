"""Makes the built pages quick to show: one style sheet of what is used, scripts that do not block, images with a size.

The theme sends 400 KB of styles, of which the book uses a fifth, and 156 KB of icons for a dozen. When the build is
finished, all style sheets of the pages become ``_static/course.css``. A rule stays if a page can show it: each class,
id and element that its selector names occurs in a page, or as a word in a script, which may set it later. The icons
that are left come along in the sheet. A page that was not written anew is lean already; it gets the sheet's new name.
"""

import base64
import hashlib
import io
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any
from urllib.parse import urlsplit

import tinycss2
from fontTools import subset
from fontTools.ttLib import TTFont
from sphinx.application import Sphinx
from sphinx.config import Config
from tinycss2 import ast

SHEET = "_static/course.css"
STYLE = re.compile(r'[ \t]*<link\b(?=[^>]*\brel="stylesheet")[^>]*?\bhref="([^"]*)"[^>]*>\n?')
SCRIPT = re.compile(r'<script(?P<defer>[^>]*?\bdefer\b)?(?P<rest>[^>]*?\bsrc="(?P<src>[^"]*)"[^>]*>)')
COLOR = re.compile(r"(?<![-\w])color:\s*([^;}]+?)\s*;?\s*(?=$|[;}])")
PRELOAD = re.compile(r'[ \t]*<link rel="preload" as="script"[^>]*>\n?')
IMAGE = re.compile(r'<img\b(?![^>]*\bwidth=)([^>]*?)\bsrc="([^"]*_images/[^"]*\.svg)"')
TAG = re.compile(r"<([a-z][a-z0-9-]*)((?:\s[^<>]*)?)>")
NAMED = re.compile(r'\b(class|id)="([^"]*)"')
WORD = re.compile(r"[A-Za-z_][\w-]*")
PROPERTY = re.compile(r"""(?<=[{;])(--[\w-]+):(?:"[^"]*"|'[^']*'|[^;{}"'])*(?:;|(?=\}))""")
ICON = re.compile("[\ue000-\uf8ff]")
BUILT_BY_SCRIPT = re.compile(r"bs-tooltip|highlighted")  # names that a script puts together

# A page is dark from its first moment; the theme's own script comes later, and until then shows a pale page.
MODE = 'document.documentElement.dataset.theme = localStorage.getItem("theme") || "auto";'
MODE_NOW = """\
document.documentElement.dataset.theme = { light: "light", dark: "dark" }[document.documentElement.dataset.mode] ||
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");"""


@dataclass
class Used:
    """The names that the pages and scripts have."""

    classes: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    elements: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)

    def read_page(self, html: str) -> None:
        """Add a page's names."""
        for tag, attributes in set(TAG.findall(html)):
            self.elements.add(tag)
            for kind, value in NAMED.findall(attributes):
                (self.classes if kind == "class" else self.ids).update(value.split())

    def has(self, name: str, of: set[str]) -> bool:
        """Say whether a page has the name, or a script may set it."""
        return name in of or name in self.words or bool(BUILT_BY_SCRIPT.match(name))

    def matches(self, selector: list[ast.Node]) -> bool:
        """Say whether the selector can match something. What it says in brackets is not looked at."""
        before = ""
        for node in selector:
            if node.type == "ident" and before not in (":", "::"):
                names = self.classes if before == "." else self.elements
                if not self.has(node.value if before == "." else node.lower_value, names):
                    return False
            elif node.type == "hash" and not self.has(node.value, self.ids):
                return False
            before = node.value if node.type == "literal" else ""
        return True


def split(nodes: list[ast.Node], mark: str = ",") -> Iterator[list[ast.Node]]:
    """The pieces of a list between its commas."""
    piece: list[ast.Node] = []
    for node in nodes:
        if node == mark:
            yield piece
            piece = []
        else:
            piece.append(node)
    yield piece


def squeezed(nodes: Iterable[ast.Node], folder: PurePosixPath) -> list[ast.Node]:
    """The nodes without comments and superfluous space, addresses made relative to the new sheet."""
    kept: list[ast.Node] = []
    for node in nodes:
        if node.type == "comment":
            continue
        if node.type == "whitespace":
            if not kept or kept[-1].type == "whitespace" or kept[-1] in (";", ":", ","):
                continue
            node.value = " "
        if node.type == "url" and not urlsplit(node.value).scheme and not node.value.startswith("#"):
            node.representation = f'url("{normpath(folder / node.value)}")'
        if (
            node.type == "function"
            and node.lower_name == "url"
            and not node.arguments[0].value.startswith(("data:", "#"))
        ):
            node.arguments[0].representation = f'"{normpath(folder / node.arguments[0].value)}"'
        for inner in ("content", "arguments"):
            if isinstance(getattr(node, inner, None), list):
                setattr(node, inner, squeezed(getattr(node, inner), folder))
        if node in (";", ",") and kept and kept[-1].type == "whitespace":
            kept.pop()
        kept.append(node)
    while kept and (kept[-1].type == "whitespace" or kept[-1] == ";"):
        kept.pop()
    return kept


def kept_rules(rules: Iterable[ast.Node], used: Used, folder: PurePosixPath) -> Iterator[str]:
    """The rules that something on a page can match, as text."""
    for rule in rules:
        if rule.type == "qualified-rule":
            prelude = squeezed(rule.prelude, folder)
            selectors = [selector for selector in split(prelude) if used.matches(selector)]
            content = tinycss2.serialize(squeezed(rule.content, folder))
            if selectors and content:
                yield f"{','.join(tinycss2.serialize(selector).strip() for selector in selectors)}{{{content}}}"
        elif rule.type == "at-rule" and rule.lower_at_keyword in ("media", "supports", "layer", "container"):
            inner = tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)
            content = "".join(kept_rules(inner, used, folder))
            if content:
                yield f"@{rule.at_keyword} {tinycss2.serialize(squeezed(rule.prelude, folder))}{{{content}}}"
        elif rule.type == "at-rule":
            if (
                rule.content is None
            ):  # @charset, which the first line of a file may say and nobody need; @import is done
                continue
            name = f"{rule.at_keyword} {tinycss2.serialize(squeezed(rule.prelude, folder))}".strip()
            yield f"@{name}{{{tinycss2.serialize(squeezed(rule.content, folder))}}}"


def licences(sheet: str) -> list[str]:
    """The notices of a sheet that must stay with it."""
    return re.findall(r"/\*!.*?\*/", sheet, re.DOTALL)


def if_asked(asked: set[str], match: re.Match[str]) -> str:
    """A custom property if it is asked for, else nothing."""
    return match[0] if match[1] in asked else ""


def only_used(rules: list[str], scripts: str) -> list[str]:
    """Drop custom properties, fonts and animations that no rule left, and no script, asks for."""
    while True:
        everything = "".join(rules)
        asked = set(re.findall(r"var\((--[\w-]+)", everything)) | set(re.findall(r"--[\w-]+", scripts))
        fewer = []
        for rule in rules:
            if rule.startswith("@font-face"):
                family = re.search(r"font-family:\s*[\"']?([^;\"'}]+)", rule)[1]
                others = everything.replace(rule, "")
                if family in re.sub(r"@font-face\{[^}]*\}", "", others):
                    fewer.append(rule)
            elif name := re.match(r"@(?:-webkit-)?keyframes ([\w-]+)", rule):
                if re.search(rf"(animation|animation-name):[^;}}]*{re.escape(name[1])}\b", everything):
                    fewer.append(rule)
            else:
                less = PROPERTY.sub(partial(if_asked, asked), rule)
                if not less.endswith("{}"):
                    fewer.append(less)
        if fewer == rules:
            return rules
        rules = fewer


def icon_font(file: Path, icons: set[str]) -> str:
    """The font at ``file`` cut down to ``icons``, as an address that holds it."""
    font = TTFont(file, recalcTimestamp=False)
    options = subset.Options(flavor="woff", layout_features=[], hinting=False, drop_tables=["FFTM", "GSUB", "GPOS"])
    cutter = subset.Subsetter(options)
    cutter.populate(text="".join(sorted(icons)))
    cutter.subset(font)
    font.flavor = "woff"
    out = io.BytesIO()
    font.save(out)
    return f"data:font/woff;base64,{base64.b64encode(out.getvalue()).decode()}"


def with_icons(sheet: str, folder: Path, used: Used) -> str:
    """Put the few icons that the sheet names into it; a font goes where no page has an icon of its style."""
    icons = set(ICON.findall(sheet)) | {chr(int(code, 16)) for code in re.findall(r"\\([ef][0-9a-f]{3})\b", sheet)}

    def cut(match: re.Match[str]) -> str:
        source = re.search(r'url\("?([^")]*/webfonts/[^")]*)\.woff2"?\)', match[0])
        if source is None:
            return match[0]
        file = folder / f"{source[1]}.ttf"
        style = file.stem.split("-")[1]  # fa-solid-900.ttf
        here = icons & set(map(chr, TTFont(file).getBestCmap()))
        if not here or not used.classes & {f"fa-{style}", f"fa{style[0]}"}:
            return ""
        return re.sub(r"src:[^;}]*(?:;base64,[^;}]*)?", f"src:url({icon_font(file, here)}) format('woff')", match[0])

    return re.sub(r"@font-face\{[^}]*\}", cut, sheet)


def with_imports(static: Path, name: str) -> Iterator[tuple[PurePosixPath, str, list[ast.Node]]]:
    """The folder, text and rules of a sheet, after those of the sheets that it imports."""
    text, folder = (static / name).read_text(encoding="utf-8"), PurePosixPath(name).parent
    rules = tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True)
    for rule in rules:
        if rule.type == "at-rule" and rule.lower_at_keyword == "import":
            address = next(node.value for node in rule.prelude if node.type in ("string", "url"))
            yield from with_imports(static, normpath(folder / address))
    yield folder, text, rules


def style_sheet(static: Path, names: Iterable[str], used: Used, scripts: str) -> str:
    """One sheet of what the sheets ``names``, relative to ``static``, say about the pages."""
    notices, rules = [], []
    for folder, text, parsed in chain.from_iterable(with_imports(static, name) for name in names):
        notices += licences(text)
        rules += kept_rules(parsed, used, folder)
    sheet = with_icons("\n".join(only_used(rules, scripts)), static, used)
    return "\n".join([*dict.fromkeys(notices), sheet, ""])


def plain_classes(sheet: str) -> set[str]:
    """The classes of code that have the colour of code itself, in every theme: half of the elements of a page."""
    colours = re.findall(r'(\[data-theme="?\w+"?\]) \.highlight(?: \.(\w+))? ?\{([^}]*)\}', sheet)
    base = {theme: color[1] for theme, name, rule in colours if not name and (color := COLOR.search(rule))}
    said: dict[str, set[str]] = {}
    for theme, name, rule in colours:
        if name:
            color = COLOR.fullmatch(rule.strip())
            said.setdefault(name, set()).add("plain" if color and color[1] == base.get(theme) else "coloured")
    return {name for name, kinds in said.items() if kinds == {"plain"}}


def with_fewer_spans(html: str, plain: set[str]) -> str:
    """Take the spans of plain classes out of blocks of code; what they hold stays."""
    if not plain:
        return html
    span = re.compile(rf'<span class="(?:{"|".join(sorted(plain))})">([^<]*)</span>')
    return re.sub(r'<div class="highlight"><pre>.*?</pre>', lambda m: span.sub(r"\1", m[0]), html, flags=re.DOTALL)


def size_of(svg: Path) -> str:
    """The width and height of a drawing as attributes in pixels, so that its place is kept while it loads."""
    root = re.search(r"<svg\b[^>]*>", svg.read_text(encoding="utf-8"))[0]
    pixels = {}
    for side in ("width", "height"):
        found = re.search(rf'\b{side}="([\d.]+)(pt|px|)"', root)
        if found is None:
            return ""
        pixels[side] = round(float(found[1]) * (4 / 3 if found[2] == "pt" else 1))
    return " ".join(f'{side}="{number}"' for side, number in pixels.items())


def quick(html: str, page: Path, address: str) -> str:
    """A page that shows itself before its scripts are there, and keeps the place of its images."""
    first = STYLE.search(html)
    if first is not None:
        up = first[1].partition("_static/")[0]
        link = f'    <link rel="stylesheet" type="text/css" href="{up}{address}" />\n'
        html = html[: first.start()] + link + STYLE.sub("", html[first.start() :])
    html = PRELOAD.sub("", html)
    html = re.sub(rf"{re.escape(SHEET)}\?v=\w+", address, html)
    html = re.sub(r'[ \t]*<script[^>]*src="[^"]*/fontawesome\.js[^>]*></script>\n?', "", html)
    html = re.sub(
        r"[ \t]*<script>DOCUMENTATION_OPTIONS\.pagename = [^<]*</script>\n?", "", html
    )  # read by nothing here
    html = SCRIPT.sub(lambda m: m[0] if m["defer"] or "defer" in m["rest"] else f"<script defer{m['rest']}", html)
    html = html.replace(MODE, MODE_NOW).replace('data-theme="auto"', 'data-theme="light"', 1)  # light without scripts

    def sized(match: re.Match[str]) -> str:
        size = size_of((page.parent / match[2]).resolve())
        later = ' loading="lazy"' if match.start() > first_image else ""
        return f'<img {size}{later} decoding="async"{match[1]}src="{match[2]}"' if size else match[0]

    first_image = html.find("_images/")
    return IMAGE.sub(sized, html)


def drop_unasked(static: Path, pages: Iterable[str]) -> None:
    """Drop what the theme brings and no page, script or sheet names; licences stay."""
    scripts = [file for file in static.rglob("*.js") if any(file.name in page for page in pages)]
    for script in scripts:
        text = script.read_text(encoding="utf-8")
        script.write_text(re.sub(r"\n//# sourceMappingURL=\S+\s*$", "\n", text), encoding="utf-8")
    sheet = static.parent / SHEET
    asking = "".join([*pages, *(file.read_text(encoding="utf-8") for file in [*scripts, sheet])])
    for file in sorted(static.rglob("*"), reverse=True):  # what is in a folder before the folder
        if file.is_dir() and not any(file.iterdir()):
            file.rmdir()
        elif file.is_file() and file != sheet and file.name not in asking and "LICENSE" not in file.name:
            file.unlink()


def make_lean(app: Sphinx, exception: Exception | None) -> None:
    """Write the one style sheet and the lean pages, and drop what no page asks for."""
    if exception is not None or app.builder.name != "html":
        return
    html = Path(app.outdir)
    pages = {
        page: page.read_text(encoding="utf-8") for page in sorted(html.rglob("*.html")) if "_static" not in page.parts
    }
    hrefs = dict.fromkeys(chain.from_iterable(STYLE.findall(text) for text in pages.values()))
    names = dict.fromkeys(urlsplit(href).path.partition("_static/")[2] for href in hrefs)
    names.pop(PurePosixPath(SHEET).name, None)
    if not names:  # no page was written anew, so all are lean; the theme has brought its files again
        drop_unasked(html / "_static", list(pages.values()))
        return
    plain = plain_classes((html / "_static" / "pygments.css").read_text(encoding="utf-8"))
    pages = {page: with_fewer_spans(text, plain) for page, text in pages.items()}
    used = Used()
    for text in pages.values():
        used.read_page(text)
    scripts = "".join(file.read_text(encoding="utf-8") for file in sorted((html / "_static").rglob("*.js")))
    used.words = set(WORD.findall(scripts))
    sheet = style_sheet(html / "_static", names, used, scripts)
    (html / SHEET).write_text(sheet, encoding="utf-8")
    address = f"{SHEET}?v={hashlib.sha256(sheet.encode()).hexdigest()[:8]}"
    for page, text in pages.items():
        pages[page] = quick(text, page, address)
        page.write_text(pages[page], encoding="utf-8")
    drop_unasked(html / "_static", list(pages.values()))


def read_look(app: Sphinx, config: Config) -> None:
    """Make styles, scripts and these extensions a setting: Sphinx makes all pages anew when one changes."""
    files = [*Path(app.srcdir, "book", "_static").glob("*.*s"), *Path(__file__).parent.glob("*.*")]  # css, js; py
    config.course_look = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()


def setup(app: Sphinx) -> dict[str, Any]:
    """Begin when all pages are written."""
    app.add_config_value("course_look", "", "env", str)
    app.connect("config-inited", read_look)
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells of every table
    app.connect("build-finished", make_lean, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
