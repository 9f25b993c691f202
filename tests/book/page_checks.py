"""What a page of the book may not do: one function for each fault, each returning the faults that it finds.

``test_planted.py`` shows each of them a page with its fault, and a page without.
"""

import re
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page

from tools import check_book

AXE = Axe()
ROOT = Path(__file__).parents[2]
FIGURES = {*re.findall(r'"(#[0-9a-f]{6})"', (ROOT / "book/figures.py").read_text(encoding="utf-8"))}

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
LOOKS = {
    "light-wide": ("light", WIDE, "http"),
    "light-narrow": ("light", NARROW, "http"),
    "dark-wide": ("dark", WIDE, "http"),
    "dark-narrow": ("dark", NARROW, "file"),  # dark and narrow are seen apart over http above
}
AXE_RULES: dict[str, list[str] | None] = {  # of axe-core, to which a look is held; None: all but the contrast
    "light-wide": None,
    "light-narrow": ["target-size", "scrollable-region-focusable"],
    "dark-wide": [],
    "dark-narrow": [],
}
CONTRAST = ("light-narrow", "dark-wide")  # the looks in which each page's contrast is measured: most of axe's time


class Watched:
    """A page of a browser, with what it asked for and complained of since it was opened.

    Requests to other hosts are noted and refused, so no test leaves this machine.
    """

    def __init__(self, context: BrowserContext, origin: str) -> None:
        """Open a page in ``context``; ``origin`` is where everything must come from: ``http://...`` or ``file://``."""
        self.page: Page = context.new_page()
        self.origin = origin
        self.external: list[str] = []
        self.complaints: list[str] = []
        self.page.route(lambda url: not self.own(url), self.refuse)
        self.page.on("console", lambda message: self.hear(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("response", lambda r: r.status >= 400 and self.complaints.append(f"{r.status}: {r.url}"))

    def own(self, url: str) -> bool:
        """Say whether ``url`` is the page's own."""
        return url.startswith((self.origin, "data:", "blob:", "about:"))

    def refuse(self, route) -> None:
        """Note a request to another host, and refuse it."""
        self.external.append(route.request.url)
        route.abort()

    def hear(self, kind: str, text: str) -> None:
        """Note what the console calls an error or a warning."""
        if kind in ("error", "warning"):
            self.complaints.append(f"console {kind}: {text}")


def external_requests(watched: Watched) -> list[str]:
    """Name what the page asked of another host."""
    return watched.external


def complaints(watched: Watched) -> list[str]:
    """Name the page's errors, the console's errors and warnings, and files that were not found."""
    return watched.complaints


def inaccessible(watched: Watched, look: str) -> list[str]:
    """Name each violation of a look's rules that axe-core finds, with the first elements that it names.

    Axe leaves out what KaTeX hides from a screen reader, which reads the MathML.
    """
    rules = AXE_RULES[look]
    if rules == []:
        return []
    chosen = {"runOnly": rules} if rules else {"rules": {"color-contrast": {"enabled": False}}}
    return _violations(watched, [".katex-html"], chosen)


def pale_text(watched: Watched) -> list[str]:
    """Name what axe-core finds too pale. Of code, on which it would spend most of its time, see ``pale_code``."""
    return _violations(watched, [".katex-html", "pre"], {"runOnly": ["color-contrast"]})


def _violations(watched: Watched, skipped: list[str], options: dict[str, object]) -> list[str]:
    # Without `preload`, by which axe would ask for the style sheets once more and complain of file:// itself.
    usual: dict[str, object] = {"preload": False, "resultTypes": ["violations"]}
    context = {"exclude": [[selector] for selector in skipped]}
    found = AXE.run(watched.page, context=context, options=usual | options).response["violations"]
    return [f"{each['id']}: {[node['html'][:200] for node in each['nodes'][:3]]}" for each in found]


def pale_code(watched: Watched) -> list[str]:
    """Name the colours in blocks of code with a contrast of less than 4.5 : 1 on their ground."""
    return watched.page.evaluate("""() => {
        const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
        const ground = (node) => {
            const [r, g, b, alpha = 1] = channels(getComputedStyle(node).backgroundColor);
            return alpha ? [r, g, b] : node.parentElement ? ground(node.parentElement) : [255, 255, 255];
        };
        const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; // WCAG's relative luminance
        const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
        const pairs = new Map();
        for (const node of document.querySelectorAll("pre, pre *")) {
            if (![...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim())) continue;
            const colour = getComputedStyle(node).color;
            pairs.set(`${colour} on ${ground(node)}`, [channels(colour).slice(0, 3), ground(node), node.outerHTML]);
        }
        return [...pairs].map(([pair, [a, b, node]]) => {
            const [dark, bright] = [light(a), light(b)].sort((x, y) => x - y);
            return [(bright + 0.05) / (dark + 0.05), `${pair}: ${node.slice(0, 100)}`];
        }).filter(([contrast]) => contrast < 4.5).map(([contrast, which]) => `${contrast.toFixed(2)} : 1, ${which}`);
    }""")


def pale_pictures(watched: Watched, html: Path) -> list[str]:
    """Name the drawings of the folder ``html`` whose words have a contrast of less than 4.5 : 1 on the page.

    Words in the colours of the book's figures, and in Matplotlib's black, stand on the page; those in other colours are
    not looked at, since they stand on a ground that the drawing has for them.
    """
    faults = []
    for name, style, ground in watched.page.evaluate("""() => [...document.images]
        .filter((image) => image.src.endsWith(".svg") && image.checkVisibility()).map((image) => {
            const coloured = (node) => {
                const colour = getComputedStyle(node).backgroundColor;
                const seen = !colour.endsWith(", 0)");
                return seen ? colour : node.parentElement ? coloured(node.parentElement) : "255 255 255";
            };
            return [new URL(image.src).pathname.split("/").pop(), getComputedStyle(image).filter, coloured(image)];
        })"""):
        (file,) = {*html.rglob(name)}
        factor = 1.0 if style == "none" else float(re.fullmatch(r"brightness\(([\d.]+)\)", style)[1])
        under = [int(channel) for channel in re.findall(r"\d+", ground)[:3]]
        for colour in sorted(_words(ElementTree.parse(file).getroot()) & {*FIGURES, "#000000"}):
            shown = [min(255, factor * int(colour[i : i + 2], 16)) for i in (1, 3, 5)]
            dark, bright = sorted(map(_luminance, (shown, under)))
            if (contrast := (bright + 0.05) / (dark + 0.05)) < 4.5:
                faults.append(f"{contrast:.2f} : 1, {name}: {colour}, {style}, on {ground}")
    return faults


def _words(node: Element, fill: str = "#000000", words: bool = False) -> set[str]:
    """The colours of the words in a drawing, which Matplotlib draws in groups text_1, text_2, ..."""
    style = re.search(r"fill: *(#\w+|none)", node.get("style", ""))
    fill = style[1] if style else node.get("fill", fill)
    words = words or node.tag.endswith("}text") or node.get("id", "").startswith("text_")
    own = {fill} if words and not len(node) else set()
    return own.union(*(_words(child, fill, words) for child in node if not child.tag.endswith("}defs")))


def _luminance(channels: list[float]) -> float:
    """WCAG's relative luminance."""
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (c / 255 for c in channels)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def overflowing(watched: Watched) -> list[str]:
    """Name the elements that make the document wider than the window, if it is."""
    return watched.page.evaluate("""() => {
        const width = document.documentElement.clientWidth;
        if (document.documentElement.scrollWidth <= width) return [];
        const clipped = (node) => node && node !== document.body &&
            (getComputedStyle(node).overflowX !== "visible" || clipped(node.parentElement));
        const wide = [...document.body.querySelectorAll("*")].filter((node) =>
            node.getBoundingClientRect().right > width + 1 && !clipped(node.parentElement));
        return [`document ${document.documentElement.scrollWidth} px wide in ${width}`,
            ...wide.slice(0, 5).map((node) => node.outerHTML.slice(0, 200))];
    }""")


def cut_titles(watched: Watched) -> list[str]:
    """Name what is cut off or outside of the window in the links to the pages before and after."""
    return watched.page.evaluate("""() => [...document.querySelectorAll(".prev-next-area a, .prev-next-area a *")]
        .filter((node) => node.clientWidth && (node.scrollWidth > node.clientWidth + 1 ||
            node.getBoundingClientRect().right > document.documentElement.clientWidth + 1))
        .map((node) => node.outerHTML.slice(0, 200))""")


def red_formulas(watched: Watched) -> list[str]:
    """Name formulas that KaTeX could not read: it sets them in red, and says nothing."""
    return watched.page.evaluate("""() => [...document.querySelectorAll("*")].filter((node) =>
        node.matches(".katex-error") || getComputedStyle(node).color === "rgb(204, 0, 0)")
        .map((node) => node.outerHTML.slice(0, 200))""")


def missing_images(watched: Watched) -> list[str]:
    """Name images that do not load or have no alternative text; their own address is none."""
    # Those below the screen load when a reader comes near.
    load = """(image) => { image.loading = "eager"; return image.decode().catch(() => {}); }"""
    watched.page.evaluate(f"() => Promise.all([...document.images].map({load}))")
    return watched.page.evaluate("""() => [...document.images]
        .filter((image) => !image.complete || !image.naturalWidth || !image.alt.trim() ||
            image.alt === image.getAttribute("src"))
        .map((image) => image.outerHTML.slice(0, 200))""")


def broken_links(watched: Watched, html: Path) -> list[str]:
    """Name the page's links to files or places that the folder ``html`` does not have."""
    root = html.as_uri() if watched.origin.startswith("file:") else watched.origin
    faults = []
    for link in sorted(set(watched.page.evaluate("() => [...document.links].map((link) => link.href)"))):
        if not watched.own(link):
            continue
        address, fragment = urldefrag(link)
        file = html / unquote(urlsplit(address).path.removeprefix(urlsplit(root).path)).lstrip("/")
        if file.is_dir():
            file /= "index.html"
        if not file.is_file():
            faults.append(f"{link}: no such file")
        elif fragment and file.suffix == ".html" and unquote(fragment) not in check_book.read(file).ids:
            faults.append(f"{link}: no such place")
    return faults


def dead_figures(watched: Watched) -> list[str]:
    """Name the figures to be moved by the reader that are not drawn, or do not answer to the keyboard.

    Every control of a figure must change what the figure says: a range by an arrow key, a menu by the arrow down, a
    box by the space bar.
    """
    faults = []
    for figure in watched.page.locator("figure[data-figure]").all():
        name = figure.get_attribute("data-figure")
        if not figure.locator("svg polyline, svg path, svg rect").count():
            faults.append(f"{name}: nothing is drawn")
        controls = figure.locator("input, select, button").all()
        if not controls:
            faults.append(f"{name}: nothing to move")
        for control in controls:
            kind = control.evaluate("node => node.type")
            key = {"range": "ArrowLeft", "select-one": "ArrowDown", "checkbox": "Space"}.get(kind, "Enter")
            before = figure.locator("output").all_inner_texts()
            control.focus()
            watched.page.keyboard.press(key)
            if figure.locator("output").all_inner_texts() == before:
                faults.append(f"{name}: {key} on its {kind} changes nothing")
    return faults


def found_by_search(watched: Watched, words: str) -> list[str]:
    """Type ``words`` into the search field, as a reader does, and list the titles of what is found."""
    watched.page.keyboard.press("Control+k")
    watched.page.keyboard.type(words)
    watched.page.keyboard.press("Enter")
    watched.page.wait_for_url("**/search.html?q=*")
    watched.page.locator("#search-results .search-summary").filter(has_not_text="Searching").wait_for()
    return watched.page.locator("#search-results li > a").all_inner_texts()
