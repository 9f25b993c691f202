"""The notebook's JSON, and what reaches a page or a terminal; thought up without a look at the defences."""

import json
from pathlib import Path

from tests.engine.attacks import RELU, Arena, Attack, find, late, own_cell, tests


def _widgets(notebook: dict) -> None:
    """Give the notebook a state of widgets that ends the script it is written into."""
    script = "</script><script>document.title = 'mallory'</script><img src=x onerror=alert(1)><!--"
    state = {
        "model_id": {"model_module": script, "model_name": script, "state": {"value": script, "_dom_classes": [script]}}
    }
    for kind in ("application/vnd.jupyter.widget-state+json", script):
        notebook["metadata"].setdefault("widgets", {})[kind] = {
            "state": state,
            "version_major": 2,
            "version_minor": script,
        }


def _unseen(notebook: dict) -> None:
    """Ask that the answers, and all that is said of them, be left out of a page."""
    for cell in notebook["cells"]:
        cell["metadata"].update(
            {
                "transient": {"remove_source": True},
                "jupyter": {"source_hidden": True, "outputs_hidden": True},
                "collapsed": True,
                "hide_input": True,
                "slideshow": {"slide_type": "skip"},
                "tags": ["remove_cell", "remove-cell", "hide-cell", "remove_input", "hide-input", "remove_output"],
            }
        )
    notebook["metadata"].update({"hide_input": True, "celltoolbar": "None", "toc": {"toc_cell": True}})


def _lexer(notebook: dict) -> None:
    """Ask for lexers whose patterns backtrack, for a last cell that they take long for."""
    notebook["metadata"]["language_info"].update(
        {
            "pygments_lexer": "perl6",
            "codemirror_mode": {"name": "mallory"},
            "mimetype": "text/x-perl",
            "file_extension": ".html",
        }
    )
    notebook["cells"].append(own_cell("%%html\n" + "<" * 30_000 + "\n" + "q:to/" * 8_000, "mine-lexer"))
    notebook["cells"].append(own_cell("# " + "((((\\\\" * 20_000, "mine-brackets"))


def _ids(notebook: dict) -> None:
    """Give the cells ids that are paths, scripts, numbers, 64 KB long."""
    ids = [
        "../../../mallory",
        '"><script>alert(1)</script>',
        "x" * 65_536,
        "",
        7,
        None,
        ["id"],
        "\u202emallory",
        "-rf",
        "a b",
    ]
    for cell, odd in zip(notebook["cells"], ids * 9, strict=False):
        cell["id"] = odd


def _ready(notebook: dict) -> None:
    """Write into every cell what a grader writes there when it is done."""
    for cell in notebook["cells"]:
        cell["metadata"].get("nbgrader", {}).update(
            {
                "score": 8,
                "auto_score": 8,
                "manual_score": 8,
                "extra_credit": 16,
                "needs_manual_grade": False,
                "max_score": 8,
                "comment": "Full points.",
                "late_submission_penalty": -20,
            }
        )
    notebook["metadata"]["nbgrader"] = {"score": 20, "max_score": 20, "late_submission_penalty": -20}


def _tasks(notebook: dict) -> None:
    """Add cells of nbgrader's third kind, tasks, and make tasks of the tests as well."""
    for number in range(3):
        notebook["cells"].append(
            {
                "cell_type": "markdown",
                "id": f"mine-task-{number}",
                "source": "I did this.",
                "metadata": {
                    "nbgrader": {
                        "grade": False,
                        "grade_id": f"task_{number}",
                        "locked": True,
                        "points": 100,
                        "schema_version": 3,
                        "solution": False,
                        "task": True,
                    }
                },
            }
        )
    for cell in tests(notebook)[-5:]:
        cell["metadata"]["nbgrader"].update({"task": True, "solution": True})


def _twins(notebook: dict) -> None:
    """Put a second cell of the same grade_id below an answer: one is read, the other is the last to be executed."""
    cell = find(notebook, "Sigmoid")
    at = notebook["cells"].index(cell)
    twin = json.loads(json.dumps(cell)) | {"id": "sigmoid-2", "source": BUILT_IN}
    notebook["cells"].insert(at + 1, twin)


def _claims(notebook: dict) -> None:
    """Say everywhere that this is alice's, and that alice's is this."""
    names = {
        "student": "alice",
        "student_id": "alice",
        "id": "alice",
        "authors": [{"name": "alice"}],
        "username": "alice",
    }
    notebook["metadata"].update(names | {"nbgrader": names, "name": "alice/01_relu/relu"})
    for cell in notebook["cells"]:
        cell["metadata"].update(names)
        cell["metadata"].get("nbgrader", {}).update(names)
    notebook["cells"].insert(
        0, {"cell_type": "raw", "id": "mine-name", "metadata": {}, "source": "student: alice\n---\nstudent_id: alice"}
    )


def _pictures(notebook: dict) -> None:
    """Attach pictures whose names are paths and whose types are none."""
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    names = [
        "../../../../mallory.png",
        "/tmp/mallory.png",
        "a\x00b.png",
        "x" * 5000,
        '" onerror="alert(1)',
        "con",
        "%2e%2e/mallory",
    ]
    text = "\n".join(f"![m](attachment:{name})" for name in names)
    attached = {
        name: {"image/png": pixel, "text/html": "PGI+", "image/svg+xml": "<svg onload=alert(1)>"} for name in names
    }
    notebook["cells"].insert(
        0, {"cell_type": "markdown", "id": "mine-pictures", "metadata": {}, "source": text, "attachments": attached}
    )
    for cell in notebook["cells"]:
        cell["metadata"]["filenames"] = {"image/png": "../../../mallory.png"}
        if cell["cell_type"] == "code":
            cell["outputs"] = [
                {
                    "output_type": "display_data",
                    "data": {"image/png": pixel},
                    "metadata": {"filenames": {"image/png": "../../../../mallory.png"}, "filename": "/tmp/mallory.png"},
                }
            ]


def _utf16(folder: Path, _: Arena) -> None:
    """Write the notebook in UTF-16: who reads bytes as JSON understands it, who reads UTF-8 does not."""
    path = folder / "relu.ipynb"
    path.write_bytes(path.read_text(encoding="utf-8").encode("utf-16"))


def _documents(folder: Path, _: Arena) -> None:
    """Put a second notebook behind the first, in one file, with all points edited and all tests True."""
    path = folder / "relu.ipynb"
    first = path.read_text(encoding="utf-8")
    second = json.loads(first)
    for cell in tests(second):
        cell["source"] = "True"
        cell["metadata"]["nbgrader"]["points"] = 1000
    path.write_bytes(first.encode() + b"\n\x00\x1a\n" + json.dumps(second).encode() + b"\xff")


BUILT_IN = """class Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.special.expit(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * (1 - y)
"""
HARMLESS = BUILT_IN.replace("torch.special.expit(x)", "x / (1 + x.abs())")
SHOW = "from IPython.display import HTML, display\n"


ATTACKS: list[Attack] = [
    Attack(
        name="widget-state",
        kind="The feedback page",
        tries="hands in a state of widgets in the notebook's metadata that closes the script it is written into",
        change=_widgets,
    ),
    Attack(
        name="picture-size",
        kind="The feedback page",
        tries="displays a picture whose width, height, alternative text and background are HTML attributes of its own",
        first=f"""{SHOW}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ODD = '1 onerror=alert("mallory") x="'
for kind, data in (("image/png", PIXEL), ("image/jpeg", PIXEL), ("image/gif", 'x" onerror="alert(1)')):
    display({{kind: data}}, raw=True, metadata={{
        kind: {{"width": ODD, "height": "9e9;position:fixed;top:0", "alt": '"><script>alert(1)</script>',
               "needs_background": 'light"><script>alert(1)</script>', "unconfined": True}},
        "isolated": True, "tags": ["<script>alert(1)</script>"],
    }})
display({{"text/html": "<script>parent.document.title='mallory'</script>"}}, raw=True, metadata={{"isolated": True, "text/html": {{"isolated": True}}}})
""",
    ),
    Attack(
        name="mutated-markup",
        kind="The feedback page",
        tries="displays HTML that is harmless as a cleaner reads it and a script when a browser reads it the second time",
        first=f"""{SHOW}
for text in (
    '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(1)&gt;">',
    '<svg></p><style><a id="</style><img src=1 onerror=alert(1)>">',
    '<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>',
    '<noscript><p title="</noscript><img src=x onerror=alert(1)>">',
    '<math><annotation-xml encoding="text/html"><style><img src=x onerror=alert(1)></style></annotation-xml></math>',
    '<svg><desc><![CDATA[</desc><script>alert(1)</script>]]></svg>',
    '<select><template><style><!--</style><a rel="--></style></template></select><img id=x src onerror=alert(1)>">',
    '<svg><animate attributeName=href values="javascript:alert(1)"/><a id=x><text y=20>mallory</text></a></svg>',
    '<a href="java\\tscript:alert(1)">a</a><a href="\\x01javascript:alert(1)">b</a><a href="&#x6A;avascript&colon;alert(1)">c</a>',
    '<a href="data:text/html,<script>alert(1)</script>">d</a><area href="vbscript:x"><img srcset="//mallory.example/x 1x">',
    '<!--><script>alert(1)</script>--><!--!><img src=x onerror=alert(1)>--!><?php <script>alert(1)</script> ?>',
    '<img src="x` `<script>alert(1)</script>"` `><x onclick=alert(1)//\\x00><scr\\x00ipt>alert(1)</scr\\x00ipt>',
    '<div style="background:u\\\\72l(//mallory.example/x);width:e/**/xpression(alert(1))">e</div>',
    '<table background="//mallory.example/x"><input type=image src="//mallory.example/y" formaction="javascript:alert(1)">',
    '<a id=MathJax name=cookie></a><img name=getElementById><form id=forms><input name=attributes></form>',
):
    display(HTML(text))
""",
    ),
    Attack(
        name="open-tags",
        kind="The feedback page",
        tries="displays tags that are never closed and take the rest of the page, with the verdicts of the other tasks, in",
        first=f"""{SHOW}
for text in ("<!--", "<plaintext>", "<xmp>", "<textarea>", "<title>", "<template>", "<select><option>", "<noembed>", "<iframe>",
             "<svg><style>", "<details><summary>All points</summary>", "<dialog>", "<table><tr><td>", "</div>" * 40,
             "</main></body></html><body hidden>", "<div hidden>", '<a href="https://mallory.example" title="', "<![CDATA[",
             "<svg><foreignObject>", "<button>", "<math><annotation>", "<del>", "<font color=white size=1>", "<bdo dir=rtl>"):
    display(HTML(text))
    display({{"text/markdown": text, "text/latex": "$" + text, "image/svg+xml": "<svg>" + text}}, raw=True)
""",
    ),
    Attack(
        name="endless-markup",
        kind="The feedback page",
        tries="displays HTML that a parser takes the square of its length for: tags, comments and entities without an end",
        first=f"""{SHOW}
size = 60_000
for text in ("<!" * size, "<![" * size, "<!--" * size, "<a " * size, "</" * size, "<?" * size, "&" * size, "&#" * size,
             "<b><p>" * (size // 10), "<a>" * (size // 10), "<table>" * (size // 20), "<svg><style>" * (size // 20),
             "<a" + " x='" * size, "<a" + "".join(f" a{{i}}=1" for i in range(size // 4)) + ">", "<script" * size,
             "<p style='" + "a:b;" * size + "'>", "<p style='" + "/*" * size + "'>", "<style>" + "a{{" * size):
    display(HTML(text[:400_000]))
""",
    ),
    Attack(
        name="laughing-entities",
        kind="The feedback page",
        tries="displays SVG and MathML whose entities name each other ten times each, a hundred million in the end, and files outside",
        first=f"""{SHOW}
lines = "".join(f'<!ENTITY l{{i}} "{{f"&l{{i - 1}};" * 10}}">' for i in range(1, 9))
head = f'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY l0 "mallory">{{lines}}<!ENTITY out SYSTEM "file:///etc/passwd">]>'
use = "".join(f'<g id="g{{i}}">' + f'<use href="#g{{i - 1}}"/>' * 10 + "</g>" for i in range(1, 7))
for text in (head + '<svg xmlns="http://www.w3.org/2000/svg"><text>&l8;&out;</text></svg>',
             f'<svg xmlns="http://www.w3.org/2000/svg"><g id="g0"><circle r="1"/></g>{{use}}</svg>'):
    display({{"image/svg+xml": text}}, raw=True)
    display(HTML(text))
""",
    ),
    Attack(
        name="picture-bomb",
        kind="The feedback page",
        tries="displays a picture of 100 KB that unpacks to 400 million points wherever a page shows it",
        first=f"""{SHOW}
import base64, struct, zlib

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

side, packer = 20_000, zlib.compressobj(9)
rows = b"".join(packer.compress(bytes(1 + side // 8)) for _ in range(side)) + packer.flush()
png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
for _ in range(1):
    display({{"image/png": base64.b64encode(png).decode()}}, raw=True)
""",
    ),
    Attack(
        name="unseen-source",
        kind="The feedback page",
        tries="marks its cells as hidden, collapsed, transient and to be removed, so that no page shows what was refused",
        change=_unseen,
    ),
    Attack(
        name="bidi-verdict",
        kind="The feedback page",
        tries="raises exceptions whose type and text turn lines around, end them without a newline and begin with a formula",
        first="""
TEXT = ("\\uff1dHYPERLINK(\\"https://mallory.example\\",\\"20\\")\\u2028alice 0 of 20\\u2029\\x85mallory 20 of 20 points\\x0b\\x0c\\x1c\\x1d\\x1e"
        "\\u202e stniop 02 fo 02 \\u202c\\u2066\\u2067\\u2068\\u200f\\u061c\\u200b\\ufeff\\u00ad" + "a" + "\\u0301" * 3000 + "\\U000e0041\\ufff9x\\ufffay\\ufffb")
Odd = type("=cmd|' /C calc'!A0\\u202eError\\u2028", (AssertionError,), {"__module__": "\\u202e\\x85builtins"})
print(TEXT)
""",
        answers={
            "LeakyReLU": RELU["LeakyReLU"].replace("return x + 1", "raise Odd(TEXT)"),
            "Tanh": RELU["Tanh"].replace(
                "return x + 1", 'raise AssertionError("\\t=1+1\\r@SUM(1)\\n+1\\n-1|" + TEXT[::-1])'
            ),
        },
    ),
    Attack(
        name="terminal-codes",
        kind="The feedback page",
        tries="prints and raises terminal codes in their eight-bit form, links, titles and what writes to the clipboard",
        first="""
CODES = ("\\x9b2J\\x9b1;1H\\x9d0;mallory\\x9c\\x9d52;c;bWFsbG9yeQ==\\x9c\\x90+q544e\\x9c\\x9b6n\\x9b5i\\x8d\\x84 \\x1bc\\x1b]8;;javascript:alert(1)\\x1b\\\\all points\\x1b]8;;\\x07"
         "\\x1b[8m hidden \\x1b[38;2;1;2;999999999999m\\x1b[" + "1;" * 5000 + "m" + "\\x1b[1m" * 5000 + "\\x08" * 300 + "\\rmallory 20 of 20")
print(CODES)
import sys, warnings
print(CODES, file=sys.stderr)
warnings.warn(CODES)
""",
        answers={"LeakyReLU": RELU["LeakyReLU"].replace("return x + 1", "raise ValueError(CODES)")},
    ),
    Attack(
        name="trojan-source",
        kind="The feedback page",
        tries="writes code that looks like a comment, by carriage returns, line separators and characters that turn lines around",
        first="# A note on squares.\rHIDDEN = 'mallory ran'\r# \u202e 'nothing here' \u2066# admin\u2069 \u2066\nprint(HIDDEN)\x0c\n# x\u2028y = 1\u2029\x85 and no more",
        answers={
            "LeakyReLU": RELU["LeakyReLU"].replace(
                "return x + 1",
                "'''\u202e\u2066 return x \u2069\u2066'''; return x + 1 # \u200b\u202d where(x > 0, x, slope * x)",
            )
        },
    ),
    Attack(
        name="formula-loops",
        kind="The feedback page",
        tries="shows LaTeX and Markdown that define themselves, load packages, link scripts and colour the page",
        first=f"""{SHOW}
from IPython.display import Latex, Markdown, Math
for text in (r"\\def\\a{{\\a\\a}}\\a", r"\\require{{html}}\\href{{javascript:alert(1)}}{{20 points}}\\style{{position:fixed}}{{x}}",
             r"\\newcommand{{\\x}}[1]{{#1#1#1#1#1#1#1#1}}" + r"\\x{{" * 60 + "m" + "}}" * 60, r"\\rule{{99999em}}{{99999em}}",
             r"\\unicode[x;background:url(//mallory.example)]{{x41}}\\class{{x onclick=alert(1)}}{{y}}\\cssId{{forms}}{{z}}",
             r"\\kern-99999em\\smash{{\\rlap{{\\color{{white}}mallory}}}}", "{{" * 20_000, "^" * 20_000, r"\\input{{/etc/passwd}}\\write18{{touch mallory}}"):
    display(Math(text), Latex("$$" + text + "$$"), Markdown("$" + text + "$ [x](<javascript:alert(1)>) ![](//mallory.example)"))
""",
    ),
    Attack(
        name="far-pictures",
        kind="The notebook file",
        tries="attaches pictures, and names files of its outputs, with paths that lead out of the folder",
        change=_pictures,
    ),
    Attack(
        name="another-lexer",
        kind="The notebook file",
        tries="asks that its page be coloured as another language, whose patterns take years for its last cells",
        change=_lexer,
    ),
    Attack(
        name="odd-ids",
        kind="The notebook file",
        tries="gives its cells ids that are paths, scripts, lists and 64 KB long",
        change=_ids,
    ),
    Attack(
        name="ready-scores",
        kind="The notebook file",
        tries="writes scores, extra credit and a negative penalty into the metadata, as a grader would",
        change=_ready,
    ),
    Attack(
        name="task-cells",
        kind="The notebook file",
        tries="adds text cells of nbgrader's kind task, of 100 points each, and makes tasks of the tests",
        change=_tasks,
    ),
    Attack(
        name="twin-answers",
        kind="The notebook file",
        tries="has two answers of one grade_id: the first reads well, the second, executed last, calls what is forbidden",
        answers={"Sigmoid": HARMLESS},
        change=_twins,
        set="02_sigmoid",
        honest=6.0,
    ),
    Attack(
        name="two-encodings",
        kind="The notebook file",
        tries="hands in a notebook in UTF-16, which one reader understands and another does not",
        place=_utf16,
    ),
    Attack(
        name="two-documents",
        kind="The notebook file",
        tries="hands in two notebooks in one file, the second with other tests and points",
        place=_documents,
    ),
    Attack(
        name="claims-alice",
        kind="Neighbours",
        tries="says in all its metadata, and in a raw cell, that it is alice's",
        answers=late(
            'import os\nos.environ.update(JUPYTERHUB_USER="alice", USER="alice", LOGNAME="alice")\nprint("student: alice")'
        ),
        change=_claims,
    ),
]
