"""What is not defended: submissions that earn more than they should, for a person to find. Not part of the suite.

A right number is a right number wherever it comes from, and what a process says about itself is what its code makes it
say. The manual names each of these; a test holds that they are what it says.
"""

from tests.engine.attacks import Attack

GAPS = [
    Attack(
        "quiet-observer",
        "Not defended",
        "keeps more than it may for backward, and rewrites the observer beside it so that it does not say so",
        answers={
            "Tanh": """def part(thing, name):
    return getattr(thing, name)
system = part(part(torch, "o" + "s"), "s" + "ys")
observer = part(system, "mod" + "ules")["grad" + "ers.inside.operation"]
real = observer.observe
observer.observe = lambda operation, case: real(
    Honest.apply if getattr(operation, "__self__", None) is Tanh else operation, case)
class Honest(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.tanh(x)
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)
class Tanh(Honest):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)
    @staticmethod
    def backward(ctx, g):
        _, y = ctx.saved_tensors
        return g * (1 - y * y)
"""
        },
        honest=10,
    ),
]
