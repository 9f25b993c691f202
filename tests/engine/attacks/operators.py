"""Attacks on the ban of operators: Sigmoid is asked for from exp alone, and made from what torch has ready."""

from tests.engine.attacks import Attack

ATTACKS: list[Attack] = []
HONEST = 6.0  # of 9: without the checks that forbid

FORM = """
{before}
def compute(x):
{body}

class Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return compute(x.detach())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * (1 - y)
"""


def _ban(name: str, tries: str, body: str, before: str = "", first: str = "", **more: object) -> None:
    text = "\n".join("    " + line for line in body.strip().split("\n"))
    answers = {"Sigmoid": FORM.format(before=before, body=text)}
    kind = "Lifting the ban"
    ATTACKS.append(Attack(name, kind, tries, first, answers, set="02_sigmoid", **{"honest": HONEST, **more}))


_ban("built-in", "calls torch.sigmoid", "return torch.sigmoid(x)")
_ban(
    "hidden-name",
    "calls torch.sigmoid under a name put together from parts",
    'return getattr(torch, "sig" + "moid")(x)',
)
_ban("kept-before", "keeps torch.sigmoid, its overloads and its C function in a cell before", "return KEPT[0](x)", first="""
import torch
KEPT = [torch.sigmoid, torch.Tensor.sigmoid, torch.ops.aten.sigmoid.default, torch._C._VariableFunctions.sigmoid]
""")  # fmt: skip
_ban("another-name", "computes it as expit, as silu(x) / x and from the logsigmoid", """
half = x.to(torch.float64)
return torch.special.expit(half).to(x.dtype)
""")  # fmt: skip
_ban("popped-mode", "ends the dispatch modes that watch it", """
from torch.utils._python_dispatch import _disable_current_modes
with _disable_current_modes():
    return torch.sigmoid(x)
""")  # fmt: skip
_ban("disabled-dispatch", "switches Python's dispatch keys off", """
with torch._C._DisableTorchDispatch(), torch._C._ExcludeDispatchKeyGuard(
        torch._C.DispatchKeySet(torch._C.DispatchKey.Python)), torch._C._AutoDispatchBelowAutograd():
    return torch.sigmoid(x)
""")  # fmt: skip
_ban("redispatch", "calls the kernel below by redispatch with key sets of its own", """
for key in (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CompositeExplicitAutograd, torch._C.DispatchKey.BackendSelect):
    try:
        return torch.ops.aten.sigmoid.default.redispatch(torch._C.DispatchKeySet(key), x)
    except Exception:
        pass
return torch.sigmoid(x)
""")  # fmt: skip
_ban("registered-again", "registers the operator's kernel again by torch.library", "return torch.sigmoid(x)", first="""
import torch
try:
    library = torch.library.Library("aten", "IMPL")
    library.impl("sigmoid", lambda x: torch.exp(x) / (1 + torch.exp(x)), "CPU", allow_override=True)
except Exception as error:
    print(error)
""")  # fmt: skip
_ban("destroyed-library", "finds the registration of the ban by the garbage collector and destroys it", "return torch.sigmoid(x)",
     first="""
import gc, torch
for thing in gc.get_objects():
    try:
        if type(thing).__name__ in ("Library", "_DispatchModule", "DispatchModule"):
            thing._destroy() if hasattr(thing, "_destroy") else thing.reset()
    except Exception as error:
        print(error)
""")  # fmt: skip
_ban("fetched-kernel", "fetches the kernel by torch.library.get_kernel and calls it directly", """
kernel = torch.library.get_kernel("aten::sigmoid", "CPU")
keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
return kernel.call_boxed(keys, x)
""")  # fmt: skip
_ban("scripted", "lets torch.jit call it", "return compiled(x)", before="""
import torch
try:
    compiled = torch.jit.CompilationUnit("def f(x):\\n    return torch.sigmoid(x)").f
except Exception:
    compiled = torch.sigmoid
""")  # fmt: skip
_ban("numpy", "computes it by numpy", "import numpy as np\nv = x.double().numpy()\n"
     "return torch.from_numpy(np.asarray(np.where(v > 0, 1 / (1 + np.exp(-abs(v))), np.exp(-abs(v)) / (1 + np.exp(-abs(v)))))).to(x.dtype)")  # fmt: skip
_ban("scalar", "computes it number by number with math.tanh", """
import math
return torch.tensor([0.5 * (1 + math.tanh(v / 2)) for v in x.double().reshape(-1).tolist()], dtype=x.dtype).reshape(x.shape)
""")  # fmt: skip
_ban("another-layout", "goes through mkldnn, sparse, quantized, nested and complex tensors", """
for turn in (lambda t: torch.sigmoid(t.to_mkldnn()).to_dense(), lambda t: torch.sigmoid(torch.complex(t, t * 0)).real,
             lambda t: torch.nested.nested_tensor([t]).sigmoid()[0]):
    try:
        return turn(x).to(x.dtype)
    except Exception:
        pass
return torch.sigmoid(x)
""")  # fmt: skip
_ban("transformed", "goes through vmap, functionalize, forward-mode and a compiled graph", """
for turn in (torch.vmap(torch.sigmoid), torch.func.functionalize(torch.sigmoid),
             lambda t: torch.func.jvp(torch.nn.functional.softplus, (t,), (torch.ones_like(t),))[1]):
    try:
        return turn(x)
    except Exception:
        pass
return torch.sigmoid(x)
""")  # fmt: skip
_ban("inside-a-layer", "lets a GRU cell, a gate and a loss compute it inside", """
flat = x.reshape(-1)
for turn in (lambda t: torch.nn.functional.glu(torch.stack([torch.ones_like(t), t]), 0).squeeze(0),
             lambda t: torch.nn.functional.silu(t) / t,
             lambda t: torch.func.grad(lambda u: torch.nn.functional.binary_cross_entropy_with_logits(
                 u, torch.zeros_like(u), reduction="sum"))(t)):
    try:
        return turn(flat).reshape(x.shape)
    except Exception:
        pass
return torch.sigmoid(x)
""")  # fmt: skip
_ban("out-and-foreach", "uses the out=, in-place, foreach and fused variants", """
for turn in (lambda t: torch._foreach_sigmoid([t])[0], lambda t: torch.sigmoid(t, out=torch.empty_like(t)),
             lambda t: t.clone().sigmoid_(), lambda t: torch.ops.aten.sigmoid.out(t, out=torch.empty_like(t))):
    try:
        return turn(x)
    except Exception:
        pass
return torch.sigmoid(x)
""")  # fmt: skip
_ban("another-thread", "computes it in a thread and in a process of its own, where no mode is on", """
import threading
result = []
thread = threading.Thread(target=lambda: result.append(torch.sigmoid(x)))
thread.start()
thread.join()
return result[0]
""")  # fmt: skip
_ban("helper-process", "forks a process in a cell before that computes for it", """
os.write(ASK, encode(x))
return decode(os.read(ANSWER, 1 << 20), x)
""", first="""
import os, torch
def encode(x):
    return repr(x.double().reshape(-1).tolist()).encode()
def decode(data, x):
    return torch.tensor(eval(data, {"inf": float("inf"), "nan": float("nan")}), dtype=x.dtype).reshape(x.shape)
(heard, ASK), (ANSWER, said) = os.pipe(), os.pipe()
if os.fork() == 0:
    while data := os.read(heard, 1 << 20):
        try:
            x = torch.tensor(eval(data, {"inf": float("inf"), "nan": float("nan")}), dtype=torch.float64)
            os.write(said, encode(torch.sigmoid(x)))
        except BaseException:
            os.write(said, b"[]")
    os._exit(0)
""")  # fmt: skip
_ban(
    "hidden-foreach",
    "calls the foreach variant under a name put together from parts",
    'return getattr(torch, "_for" + "each_sig" + "moid")([x])[0]',
)
_ban("hidden-math", "reaches Python's math by the attribute of a module that imports it, under a name put together", """
m = getattr(torch._tensor_str, "ma" + "th")
return torch.tensor([0.5 * (1 + m.tanh(float(v) / 2)) for v in x.double().reshape(-1)], dtype=x.dtype).reshape(x.shape)
""")  # fmt: skip
_ban("two-faces", "computes by torch.sigmoid, and honestly only when it sees that it is watched", """
if torch._C._len_torch_dispatch_stack() > 0:
    e = torch.exp(-x.abs())
    return torch.where(x > 0, 1 / (1 + e), e / (1 + e))
return torch.sigmoid(x)
""")  # fmt: skip
_ban("registered-subclass", "answers by a tensor subclass whose dispatch computes it unseen", """
class T(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*[a.as_subclass(torch.Tensor) if isinstance(a, T) else a for a in args], **(kwargs or {}))
with torch._C._DisableTorchDispatch():
    return torch.Tensor.sigmoid(x.as_subclass(torch.Tensor))
""")  # fmt: skip
_ban("restored-python", "puts back Python functions that were emptied: their code from a module loaded again", """
import importlib, sys
try:
    for name in [n for n in sys.modules if n.startswith("torch.nn.functional")]:
        importlib.reload(sys.modules[name])
except Exception:
    pass
return torch.nn.functional.logsigmoid(x).exp()
""")  # fmt: skip
