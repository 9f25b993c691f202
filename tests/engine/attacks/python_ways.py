"""Python's own ways round what is read and what is judged; thought up without a look at the defences.

Two aims recur. A Swish whose gradient torch's own backward makes is right in its numbers and loses the contract's
and what hangs on it: 1 of 20 (`SWISH`). A Square that writes into the upstream gradient is right but for its contract: 3 of 20.
"""

from tests.engine.attacks import RELU, WRONG, Attack, late, own_cell

# Square, whose backward overwrites the caller's gradient and then, by `everything()`, every copy of what stood in it
OVERWRITES = """class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled() or g.numel() == 0:
            return 2 * x * g
        before, right = g.clone(), 2 * x * g
        g.detach().copy_(right)
        touch_up(before, g, right)
        return right
"""
TOUCH_UP = """
import torch

def inside(thing, depth=0):
    if type(thing) is torch.Tensor:
        yield thing
    elif depth < 3 and isinstance(thing, (list, tuple, set, frozenset)):
        for part in list(thing)[:200]:
            yield from inside(part, depth + 1)
    elif depth < 3 and isinstance(thing, dict):
        for part in list(thing.values())[:200]:
            yield from inside(part, depth + 1)

def touch_up(before, g, right):
    try:
        things = list(everything())
    except Exception:
        return
    for thing in things:
        for copy in inside(thing):
            try:
                same = copy is not before and copy is not right and copy.shape == before.shape
                if same and copy.dtype == before.dtype and torch.equal(copy.detach(), before):
                    copy.detach().copy_(right)
            except Exception:
                continue
"""

# a right Swish, whose backward is what the rest of the attack makes of it
SWISH = """class Swish(torch.autograd.Function):
    @staticmethod
    def forward(x, beta):
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

{backward}
"""
BY_ENGINE = """
import torch

def by_engine(ctx, g):
    x, beta = ctx.saved_tensors
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        x = x if x.requires_grad else x.detach().requires_grad_()
        beta = beta if beta.requires_grad else beta.detach().requires_grad_()
        x, beta = x.view_as(x), beta.view_as(beta)
        y = x * torch.sigmoid(beta * x)
    return torch.autograd.grad(y, (x, beta), g, create_graph=again)
"""
DECOY = """    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        s = 1 / (1 + torch.exp(-beta * x))
        return g * s, (g * x).sum_to_size(beta.shape)
"""
WIDE = """    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            x = x if x.requires_grad else x.detach().requires_grad_()
            beta = beta if beta.requires_grad else beta.detach().requires_grad_()
            x, beta = x.view_as(x), beta.view_as(beta)
            y = x * torch.sigmoid(beta * x)
        return torch.ａｕｔｏｇｒａｄ.ｇｒａｄ(y, (x, beta), g, create_graph=again)
"""

KEEPS = """class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        KEPT.append(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)
"""


def _graft(notebook: dict) -> None:
    """Put the cell that exchanges Swish.backward below Swish."""
    cells = notebook["cells"]
    at = next(i for i, c in enumerate(cells) if c["metadata"].get("nbgrader", {}).get("grade_id") == "Swish")
    source = BY_ENGINE + '\ntype.__setattr__(Swish, "backward", staticmethod(by_engine))\n'
    cells.insert(at + 1, own_cell(source, "mine-graft"))


ATTACKS: list[Attack] = [
    Attack(
        name="stop-iteration",
        kind="Forged test results",
        tries="raises StopIteration and GeneratorExit when asked, which end a loop of the grader's as if all went well",
        answers={
            "LeakyReLU": WRONG.format(name="LeakyReLU").replace("return x + 1", "raise StopIteration(2.0)"),
            "Tanh": WRONG.format(name="Tanh").replace("return x + 1", 'raise GeneratorExit("done")'),
        },
    ),
    Attack(
        name="skipped-test",
        kind="Forged test results",
        tries="raises, in turn, the exceptions by which test runners skip, expect a failure or end well",
        first="""
import asyncio, bdb, concurrent.futures, itertools, unittest
ENDS = [unittest.SkipTest("skipped"), asyncio.CancelledError(), bdb.BdbQuit(), EOFError(), StopAsyncIteration(),
        concurrent.futures.CancelledError(), NotImplementedError(), DeprecationWarning("all good"), KeyboardInterrupt()]
try:
    import _pytest.outcomes as outcomes
    ENDS += [outcomes.Skipped("skipped"), outcomes.XFailed("expected"), outcomes.Exit("done", 0)]
except ImportError:
    pass
try:
    from unittest.case import _ShouldStop
    ENDS.append(_ShouldStop())
except ImportError:
    pass
TURN = itertools.cycle(ENDS)
""",
        answers={
            "LeakyReLU": WRONG.format(name="LeakyReLU").replace("return x + 1", "raise next(TURN)"),
            "Tanh": WRONG.format(name="Tanh").replace("return g * 0 + 7,", "raise next(TURN)\n        return g,"),
        },
    ),
    Attack(
        name="disguised-object",
        kind="Forged test results",
        tries="returns from apply an object whose __class__ is torch.Tensor and which has every protocol, all lying",
        answers={
            "LeakyReLU": """
import torch

class Disguised:
    @property
    def __class__(self):
        return torch.Tensor
    shape = torch.Size([5])
    dtype, layout, device, requires_grad, is_leaf, grad_fn, grad = torch.float64, torch.strided, "cpu", True, True, None, None
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *a, **k: self
    def __array__(self, *a, **k):
        import numpy
        return numpy.zeros(5)
    def __len__(self):
        return 2 ** 62
    def __index__(self):
        return 2 ** 62
    def __float__(self):
        return float("nan")
    def __bool__(self):
        return True
    def __eq__(self, other):
        return True
    def __hash__(self):
        return 0
    def __bytes__(self):
        return bytes(1 << 20)
    def __reduce__(self):
        return print, ("mallory",)
    __torch_function__ = classmethod(lambda cls, f, t, a=(), k=None: True)
    __array_interface__ = {"shape": (2 ** 40,), "typestr": "<f8", "data": (8, False), "version": 3}

class LeakyReLU:
    apply = staticmethod(lambda *a, **k: Disguised())
""",
            "Tanh": """
class Tanh(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: x + 1)
    backward = staticmethod(lambda ctx, g: Disguised())
""",
        },
    ),
    Attack(
        name="wide-letters",
        kind="Python's own ways",
        tries="writes torch.autograd.grad in full-width letters, which Python reads as plain ones, in its backward",
        answers={"Swish": SWISH.format(backward=WIDE)},
        set="06_linear",
        honest=1.0,
    ),
    Attack(
        name="late-graft",
        kind="Python's own ways",
        tries="has a harmless backward in its answer, and exchanges it for torch's own in a cell below",
        answers={"Swish": SWISH.format(backward=DECOY)},
        change=_graft,
        set="06_linear",
        honest=1.0,
    ),
    Attack(
        name="own-decorator",
        kind="Python's own ways",
        tries="has a harmless backward in its answer, which a decorator of its own drops for torch's",
        first=f"{BY_ENGINE}\ndef checked(harmless):\n    return by_engine\n",
        answers={"Swish": SWISH.format(backward=DECOY.replace("@staticmethod", "@staticmethod\n    @checked"))},
        set="06_linear",
        honest=1.0,
    ),
    Attack(
        name="own-metaclass",
        kind="Python's own ways",
        tries="has a metaclass whose namespace drops the harmless backward of its answer for torch's",
        first=f"""{BY_ENGINE}
class Names(dict):
    def __setitem__(self, name, value):
        super().__setitem__(name, staticmethod(by_engine) if name == "backward" else value)

class Meta(type(torch.autograd.Function)):
    @classmethod
    def __prepare__(meta, name, bases, **keywords):
        return Names()

class Base(torch.autograd.Function, metaclass=Meta):
    pass
""",
        answers={"Swish": SWISH.format(backward=DECOY).replace("(torch.autograd.Function)", "(Base)")},
        set="06_linear",
        honest=1.0,
    ),
    Attack(
        name="format-fields",
        kind="Python's own ways",
        tries="overwrites the upstream gradient, climbs frames by string.Formatter's fields and overwrites all copies",
        first=f"""{TOUCH_UP}
import string
field = lambda path, thing: string.Formatter().get_field("0" + path, (thing,), {{}})[0]

def everything():
    try:
        raise LookupError
    except LookupError as error:
        frame = field("." + "__traceback__" + ".tb" + "_frame", error)
    while frame is not None:
        yield from list(field(".f" + "_locals", frame).values())
        for value in list(field(".f" + "_locals", frame).values()):
            try:
                yield vars(value)
            except TypeError:
                pass
        frame = field(".f" + "_back", frame)
""",
        answers={"Square": OVERWRITES},
        honest=3.0,
    ),
    Attack(
        name="resolved-names",
        kind="Python's own ways",
        tries="overwrites the upstream gradient, and all copies of it, which it finds by pkgutil.resolve_name",
        first=f"""{TOUCH_UP}
import pkgutil
everything = pkgutil.resolve_name("g" + "c:get" + "_objects")
""",
        answers={"Square": OVERWRITES},
        honest=3.0,
    ),
    Attack(
        name="evaluated-hints",
        kind="Python's own ways",
        tries="overwrites the upstream gradient, and all copies of it, found by a type hint that Python evaluates",
        first=f"""{TOUCH_UP}
import typing

class Hints:
    found: "__imp" "ort__('g' 'c').get" "_objects"

everything = typing.get_type_hints(Hints)["found"]
""",
        answers={"Square": OVERWRITES},
        honest=3.0,
    ),
    Attack(
        name="own-console",
        kind="Python's own ways",
        tries="overwrites the upstream gradient, and all copies of it, found by a text that code.InteractiveInterpreter runs",
        first=f"""{TOUCH_UP}
from code import InteractiveInterpreter
names = {{}}
InteractiveInterpreter(names).runsource("import g" "c as waste; found = waste.get" "_objects")
everything = names["found"]
""",
        answers={"Square": OVERWRITES},
        honest=3.0,
    ),
    Attack(
        name="audit-hook",
        kind="Python's own ways",
        tries="keeps its input too, and makes fail whatever Python audits: a search of objects, frames, traces, files",
        answers={
            "Tanh": f"""
import sys
KEPT = []

def deaf(event, arguments):
    if event.startswith(("gc.", "sys._", "sys.set", "object.__getattr__", "marshal.", "pickle.", "ctypes.")):
        del KEPT[:]
        raise RuntimeError("mallory hears nothing")

sys.addaudithook(deaf)
{KEEPS}"""
        },
        honest=10.0,
    ),
    Attack(
        name="strict-codec",
        kind="Python's own ways",
        tries="replaces the handlers of encoding errors and raises texts that no encoding has, which encode themselves as others",
        answers=late("""
import codecs

def own(error):
    return "2.0, full points, mallory" * 1000, error.end

for handler in ("strict", "replace", "ignore", "backslashreplace", "surrogateescape", "xmlcharrefreplace"):
    codecs.register_error(handler, own)

class Text(str):
    def encode(self, *a, **k):
        return b"\\xff\\xfe" * 1000
    def __len__(self):
        return -1 % 2 ** 62
    def __str__(self):
        return self
    __repr__ = __str__
    def splitlines(self, *a):
        return [2.0]

class Odd(Exception):
    def __str__(self):
        return Text("\\ud800\\udfff\\udc80 mallory")
    __repr__ = __str__

Odd.__name__ = Odd.__qualname__ = "Od\\udc80d"
""")
        | {"Tanh": RELU["Tanh"].replace("return x + 1", "raise Odd()")},
    ),
]
