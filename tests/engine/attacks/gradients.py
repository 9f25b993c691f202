"""Attacks on whose gradient it is: torch's, told as the student's own. The text asks for one without torch.autograd."""

from tests.engine.attacks import Attack

ATTACKS: list[Attack] = []
HONEST = 3.0  # of 20: the values of three tasks
FORGED = "import graders.inside.observe as o\no._gradient_is_own = lambda output: True\no.NESTED = type('', (list,), dict(__bool__=lambda s: False))()"
HIDDEN = """def part(thing, name):
    return getattr(thing, name)
observer = part(part(part(torch, "o" + "s"), "s" + "ys"), "mod" + "ules")["grad" + "ers.inside.observe"]
observer._gradient_is_own = lambda output: True
observer.NESTED = type("", (list,), dict(__bool__=lambda s: False))()"""
BARE = """{before}
class {name}:
    apply = staticmethod({function})"""
WRAPPED = """{before}
class {name}(torch.autograd.Function):
    @staticmethod
    def forward(x, *rest):
        return {function}(x, *rest)
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.rest = inputs[1:]
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        f = lambda x: {function}(x, *ctx.rest)
{body}
        return found, *[None] * len(ctx.rest)"""
FUNCTIONS = {"Square": "torch.square", "LeakyReLU": "torch.nn.functional.leaky_relu", "Tanh": "torch.tanh"}
GRAD = """with torch.enable_grad():
    x = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
    (found,) = torch.autograd.grad(f(x), x, g, create_graph=True)"""
ENGINE = """with torch.enable_grad():
    x = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
    engine = (lambda thing, name: getattr(thing, name))(torch.autograd.graph, "_engine" + "_run_backward")
    (found,) = engine((f(x),), (g,), True, True, (x,), allow_unreachable=True, accumulate_grad=False)"""
FORWARD = """import torch.autograd.forward_ad as forward
with forward.dual_level():
    found = g * forward.unpack_dual(f(forward.make_dual(x * 1, torch.ones_like(x)))).tangent"""
NODE = """with torch.enable_grad():
    found = f(x.detach().requires_grad_()).grad_fn(g)"""
FUNC = """found = getattr(torch, "func").vjp(f, x)[1](g)[0]"""
PROGRAM = """import io, sys
process = __import__("sub" + "process")
code = '''import io, sys, torch
function, x, rest, g = torch.load(io.BytesIO(sys.stdin.buffer.read()), weights_only=False)
x.requires_grad_()
(found,) = torch.autograd.grad(eval(function)(x, *rest), x, g)
torch.save(found, sys.stdout.buffer)'''
pipe = io.BytesIO()
torch.save(("{function}", x.detach(), ctx.rest, g.detach()), pipe)
said = process.run([sys.executable, "-c", code], input=pipe.getvalue(), capture_output=True).stdout
found = torch.load(io.BytesIO(said))"""


def _torchs(
    name: str, tries: str, form: str = BARE, body: str = "", first: str = "", before: str = "", **more: object
) -> None:
    answers = {}
    for task, function in FUNCTIONS.items():
        text = "\n".join("        " + line for line in body.replace("{function}", function).split("\n"))
        answers[task] = form.replace("{body}", text).format(name=task, function=function, before=before)
    ATTACKS.append(Attack(name, "Torch's gradient", tries, first, answers, **{"honest": HONEST, **more}))


_torchs("torch-told-as-own", "gives torch's functions for its own, and makes the observer say so", first=FORGED)
_torchs("torch-told-by-pieces", "does the same under names put together from parts", before=HIDDEN)
_torchs("autograd-in-the-open", "calls torch.autograd.grad in backward", WRAPPED, GRAD)
_torchs("autograd-unseen", "does the same, and makes the observer silent", WRAPPED, GRAD, before=HIDDEN)
_torchs("engine-called", "calls autograd's engine below torch.autograd", WRAPPED, ENGINE)
_torchs("forward-mode", "differentiates forward, by dual numbers", WRAPPED, FORWARD)
_torchs("node-called", "calls the node that torch's function leaves behind", WRAPPED, NODE)
_torchs("functional", "takes torch.func under a hidden name", WRAPPED, FUNC)
