"""Mistakes in checkpoint."""

import warnings
from collections.abc import Callable

import torch
import torch.utils.checkpoint
from torch import Tensor

from graders.judge.wording import KEPT_OUTSIDE
from graders.judge.wrong import Wrong
from graders.sets.checkpointing.checkpoint import Rerun, as_tuple, task
from graders.sets.checkpointing.common import as_leaf

wrong = Wrong(task, of=Rerun)

# --- What is returned -------------------------------------------------------------------------------------------------


@wrong.forward(
    "value",
    "You return the first tensor of a tuple alone. What fn returns is what checkpoint returns: a tensor, or a tuple.",
)
def first_output_returned(fn, around, anchor, *args):
    return as_tuple(fn(*args))[0]


@wrong.forward(
    "value",
    "You return a tuple also where fn returns a tensor. Remember which it was: a tensor comes back as a tensor.",
)
def always_a_tuple(fn, around, anchor, *args):
    return as_tuple(fn(*args))


@wrong.step(
    "saved",
    "value",
    "You give save_for_backward all arguments. It takes tensors and None: keep a number, a bool or a string on ctx, "
    "and remember the places.",
)
def saves_numbers(args):
    return args


@task.mistake(
    "value",
    "Your output is cut off from the graph: fn runs under no_grad and nothing of yours takes its place. The Function's "
    "apply must return the output, with its anchor among the arguments.",
)
def cut_off(fn, *args):
    with torch.no_grad():
        return fn(*args)


# --- Gradients of arguments -------------------------------------------------------------------------------------------


@wrong.step(
    "gradients",
    "arguments",
    "You differentiate the sum of the outputs: the upstream gradient is missing. Give it to the backward of the second "
    "run.",
)
def upstream_ignored(args, outputs, upstream):
    return Rerun.gradients(args, outputs, list(map(torch.ones_like, upstream)))


@wrong.step(
    "gradients",
    "arguments",
    "Parameters get their gradients and the arguments get None. Either their copies in the second run do not require "
    "gradients (after detach() comes requires_grad_()), or what is in the copies' .grad is not what you return.",
)
def nothing_for_arguments(args, outputs, upstream):
    torch.autograd.backward(outputs, upstream)
    return [None] * len(args)


@wrong.step(
    "copy",
    "arguments",
    "You run fn on the saved arguments themselves. The inner backward then goes on into the caller's graph, and what "
    "you return comes on top: gradients are doubled. Run it on x.detach().requires_grad_().",
)
def not_detached(argument):
    return argument


@wrong.step(
    "copy",
    "arguments",
    "You let every tensor argument require a gradient, and torch refuses that for integers: indices. Ask the saved "
    "tensor: copy.requires_grad_(t.requires_grad).",
)
def indices_required(argument):
    return argument.detach().requires_grad_() if isinstance(argument, Tensor) else argument


@wrong.backward(
    "arguments",
    "Backward runs without gradients, so what you differentiate there needs a graph of its own. Put the second run, "
    "and all that you compute from its outputs, into torch.enable_grad().",
)
def enable_grad_forgotten(ctx, *upstream):
    args = Rerun.arguments(ctx)
    with ctx.around.again(), torch.no_grad():
        outputs = as_tuple(ctx.fn(*args))
    return None, None, None, *Rerun.gradients(args, outputs, upstream)


@wrong.backward(
    "arguments",
    "You return the gradients of the tensors one after another, and None for the rest behind them. Where a number "
    "stands between two tensors, gradients land in the wrong places: one entry for each argument, in order.",
)
def places_lost(ctx, *upstream):
    head, found = Rerun.backward(ctx, *upstream)[:3], Rerun.backward(ctx, *upstream)[3:]
    tensors = [g for g, t in zip(found, ctx.saved_tensors, strict=True) if t is not None]
    return *head, *tensors, *[None] * (len(found) - len(tensors))


@wrong.step(
    "gradients",
    "arguments",
    "Your inner backward starts at the first output only. Each output has an upstream gradient: "
    "torch.autograd.backward takes a list of both.",
)
def first_output_only(args, outputs, upstream):
    return Rerun.gradients(args, outputs[:1], upstream[:1])


@wrong.step(
    "arguments",
    "arguments",
    "You know the copies of the arguments by their address, so one tensor given twice has one copy, whose gradient you "
    "return in both places: twice too much. Each place has a copy of its own.",
)
def copies_by_address(ctx):
    args, copies = Rerun.arguments(ctx), {}
    return [copies.setdefault(a.data_ptr(), a) if isinstance(a, Tensor) and a.numel() else a for a in args]


# --- Gradients of parameters ------------------------------------------------------------------------------------------


@wrong.step(
    "gradients",
    "parameters",
    "Parameters of fn get no gradient: torch.autograd.grad returns those of the arguments, and fn's parameters are "
    "none of them. The layer inside never learns. An inner backward() adds to the .grad of every leaf it reaches.",
)
def parameters_none(args, outputs, upstream):
    own = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
    grads = torch.autograd.grad(outputs, own, upstream, allow_unused=True)
    found = dict(zip(map(id, own), grads, strict=True))
    return [found.get(id(a)) for a in args]


@wrong.step(
    "anchor",
    "parameters",
    "Where no argument requires a gradient, your output requires none either, and fn's parameters get nothing. Give "
    "the Function one tensor more, that always requires a gradient and is not used.",
)
def without_anchor():
    return None


def _held_by(fn: Callable) -> list[Tensor]:
    """Return the leaves in a function's closure, and in those of functions there."""
    held = [cell.cell_contents for cell in fn.__closure__ or ()]
    found = [t for t in held if isinstance(t, Tensor) and t.requires_grad]
    return found + [t for f in held if hasattr(f, "__closure__") for t in _held_by(f)]


@wrong.backward(
    "parameters",
    "You look for fn's parameters: in its closure, or by parameters(). fn is any callable, and may hold them in a "
    "list, in an object whose method it is, or in functools.partial. An inner backward() reaches the leaves without "
    "knowing them.",
)
def parameters_searched(ctx, *upstream):
    args = Rerun.arguments(ctx)
    outputs = Rerun.run(ctx, args)
    own = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
    found = _held_by(ctx.fn)
    pairs = [(o, g) for o, g in zip(outputs, upstream, strict=True) if o.requires_grad]
    grads = torch.autograd.grad([o for o, _ in pairs], own + found, [g for _, g in pairs], allow_unused=True)
    for leaf, grad in zip(found, grads[len(own) :], strict=True):
        leaf.grad = grad if leaf.grad is None or grad is None else leaf.grad + grad
    known = dict(zip(map(id, own), grads, strict=False))
    return None, None, None, *[known.get(id(a)) for a in args]


@wrong.step(
    "gradients",
    "parameters",
    "Parameters get their gradients twice: your inner backward runs twice, once for the arguments and once for the "
    "rest. Once adds to every leaf, the arguments' copies included.",
)
def parameters_doubled(args, outputs, upstream):
    torch.autograd.backward(outputs, upstream, retain_graph=True)
    for a in args:
        if isinstance(a, Tensor):
            a.grad = None
    return Rerun.gradients(args, outputs, upstream)


# --- The random stream ------------------------------------------------------------------------------------------------


@wrong.step(
    "run",
    "randomness",
    "Your second run draws new dropout masks, so the gradient belongs to an output that you did not return. Take "
    "torch.get_rng_state() before fn runs, and set it for the second run.",
)
def masks_redrawn(ctx, args):
    ctx.around.stream = torch.get_rng_state()
    return Rerun.run(ctx, args)


@wrong.forward(
    "randomness",
    "You take the random state after fn has run, in setup_context or at the end of forward, so the second run draws "
    "the numbers after those. Take it before, outside the Function or first thing in forward(ctx, ...).",
)
def state_taken_late(fn, around, anchor, *args):
    result = fn(*args)
    around.stream = torch.get_rng_state()
    return result


@wrong.step(
    "run",
    "randomness",
    "You keep the seed of the random stream, or set one, and seed the second run. The stream has moved on since it was "
    "seeded, so the masks differ. Take its state where it is, torch.get_rng_state(), and set that.",
)
def seed_for_state(ctx, args):
    with torch.random.fork_rng([]):
        torch.manual_seed(torch.initial_seed())
        ctx.around.stream = torch.get_rng_state()
    return Rerun.run(ctx, args)


@wrong.step(
    "run",
    "randomness",
    "Your backward sets the random stream back for the second run and leaves it there. What the caller draws next "
    "repeats earlier numbers: put the stream back where it was, or use torch.random.fork_rng.",
)
def stream_left_behind(ctx, args):
    torch.set_rng_state(ctx.around.stream)
    with torch.enable_grad(), torch.autocast("cpu", **ctx.around.cast):
        return as_tuple(ctx.fn(*args))


# --- Autocast ---------------------------------------------------------------------------------------------------------


@wrong.step(
    "run",
    "autocast",
    "The forward ran under autocast and your second run does not, so backward differentiates a float32 function that "
    "nobody computed. Note torch.is_autocast_enabled and the dtype before fn runs, and enter the same autocast again.",
)
def autocast_forgotten(ctx, args):
    ctx.around.cast["enabled"] = False
    return Rerun.run(ctx, args)


@wrong.step(
    "run",
    "autocast",
    "Your second run is always under autocast, also where the forward was not: in float32 the gradient gets the digits "
    "of bfloat16. Enter it with enabled= as it was.",
)
def autocast_always(ctx, args):
    ctx.around.cast["enabled"] = True
    return Rerun.run(ctx, args)


@wrong.step(
    "run",
    "autocast",
    "Your second run is under autocast where the forward was, but always in bfloat16 (the CPU's default). Note "
    "torch.get_autocast_dtype as well, and enter it with that dtype.",
)
def autocast_dtype_forgotten(ctx, args):
    ctx.around.cast["dtype"] = torch.bfloat16
    return Rerun.run(ctx, args)


@wrong.step(
    "run",
    "autocast",
    "You enter autocast where the forward was under it, and never switch it off. Where backward is called under "
    "autocast and the forward was not, the second run is in bfloat16: enter it with enabled= as it was, False too.",
)
def autocast_never_off(ctx, args):
    ctx.around.cast["enabled"] |= torch.is_autocast_enabled("cpu")
    return Rerun.run(ctx, args)


# --- Memory and time --------------------------------------------------------------------------------------------------


@wrong.step(
    "gradients",
    "memory",
    "Your inner backward keeps a graph of the gradients (create_graph=True), and a parameter's .grad holds it and all "
    "it is made of. Leave it out: the task asks for first derivatives.",
)
def graph_of_gradients(args, outputs, upstream):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.autograd.backward(outputs, upstream, create_graph=True)
    return [a.grad if isinstance(a, Tensor) else None for a in args]


@task.mistake(
    "memory",
    "You call fn as if there were no checkpoint: all that it makes on its way stays in memory until backward. It runs "
    "without a graph first, and again, with one, in backward.",
)
def no_checkpoint(fn, *args):
    return fn(*args)


@task.mistake(
    "memory",
    "Your forward runs fn with a graph and keeps it for backward, so nothing is recomputed and nothing is freed. Keep "
    "fn and its arguments, and run it again in backward.",
)
class graph_kept(Rerun):
    @staticmethod
    def forward(fn, around, anchor, *args):
        around.args = list(map(as_leaf, args))
        with torch.enable_grad():
            result = fn(*around.args)
        around.outputs = as_tuple(result)
        outputs = tuple(o.detach() for o in around.outputs)
        return outputs if isinstance(result, tuple) else outputs[0]

    @staticmethod
    def arguments(ctx):
        return ctx.around.args

    @staticmethod
    def run(ctx, args):
        return ctx.around.outputs


@wrong.forward(
    "memory",
    "You run fn in forward more than once, to see what it returns or to save the right things. It runs once in forward "
    "and once in backward.",
)
def twice_in_forward(fn, around, anchor, *args):
    with torch.random.fork_rng([]):
        fn(*args)
    return fn(*args)


# --- What belongs to others -------------------------------------------------------------------------------------------


@wrong.step(
    "saved",
    "contract",
    "You keep the arguments on ctx, or in a closure, where torch does not watch them: changed in place before "
    "backward, they give a silently wrong gradient. Tensors go through ctx.save_for_backward.",
)
def kept_as_attribute(args):
    return [None] * len(args)


@wrong.step(
    "saved",
    "contract",
    "Floating tensors go through ctx.save_for_backward, tensors of indices stay on ctx, where torch does not watch "
    "them: changed in place before backward, they lead gradients to wrong places. Save every tensor.",
)
def indices_unwatched(args):
    return [a if isinstance(a, Tensor) and a.is_floating_point() else None for a in args]


@task.mistake(
    "contract",
    "You keep fn outside ctx (on the class, or in a global): a second checkpoint puts its fn there, and the first "
    "one's backward runs the wrong function. Keep what is not a tensor on ctx.",
)
class fn_outside_ctx(Rerun):
    @classmethod
    def setup_context(cls, ctx, inputs, output):
        super().setup_context(ctx, inputs, output)
        cls.fn = ctx.fn

    @classmethod
    def run(cls, ctx, args):
        ctx.fn = cls.fn
        return super().run(ctx, args)


@task.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Rerun):
    @classmethod
    def setup_context(cls, ctx, inputs, output):
        cls.fn, cls.around, _, *cls.args = inputs

    @classmethod
    def arguments(cls, ctx):
        return list(map(as_leaf, cls.args))

    @classmethod
    def run(cls, ctx, args):
        with cls.around.again():
            return as_tuple(cls.fn(*args))


@wrong.step(
    "run",
    "contract",
    "Your backward works once. With retain_graph=True it may run again: forget nothing in it (fn, arguments, what you "
    "recomputed and handed out), or compute it anew.",
)
def works_once(ctx, args):
    outputs = Rerun.run(ctx, args)
    ctx.fn = None
    return outputs


@wrong.backward(
    "contract",
    "Your backward writes into the upstream gradient. That tensor is not yours: another branch of the graph, or the "
    "caller, holds the same one and now has wrong numbers.",
)
def writes_into_upstream(ctx, *upstream):
    grads = Rerun.backward(ctx, *upstream)
    for g in upstream:
        g.zero_()
    return grads


@task.mistake(
    "contract",
    "You call torch.utils.checkpoint. It does what the task asks for, and is what the task is not to be solved with.",
)
def torch_s_own(fn, *args):
    return torch.utils.checkpoint.checkpoint(fn, *args, use_reentrant=False)
