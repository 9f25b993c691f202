"""What to try next, by the look that found the fault."""

from graders.judge.looks import NO_RETURN
from graders.judge.verdict import Verdict

NAMED = "Change that one thing, run the cell again, and ask the coach again."
NAN = "Yours is nan there: inf - inf, inf / inf or 0 * inf. Print each step for that input; which of them is infinite?"
CURED = "Do what the sentence says, run the cell again, and ask the coach again."  # it holds the cure
NEXT = {
    "exists": "Run the cell that defines {task}, then ask the coach again.",
    "runs": "Run the code below, and look in the traceback for the last line that is yours. Where none is, torch "
    "complains of how forward was called, or of what backward returned.",
    "returns": "Look at the return statement at the end of your forward: what is its type?",
    "shape": "Print the shape of every intermediate result for the case below. Where does it change first?",
    "dtype": "Print the dtype after each line for the case below. What float() "
    "gives is float32, and so is a tensor made without dtype=.",
    "precise": "Look for what narrows the numbers on the way: float(), .float(), or a tensor made without dtype=. "
    "Beside an x without dimensions such a tensor decides the dtype.",
    "value": "Work out the one number named above by hand, then print your intermediate results for it.",
    "function": "Run the code below: every node that it prints and that is not your own comes from forward. What "
    "computes outside of your Function?",
    "no function": "This task asks for torch's own gradient: leave your Function out.",
    "gradient": "Take the one element named above. By the formula that the task gives, what is its upstream gradient "
    "multiplied by?",
    "gradcheck": "Run the code below: gradcheck prints your Jacobian beside the numerical one. Which entries differ, "
    "and by which factor?",
    "second order": "What does your backward use that was computed in forward? Save the inputs and compute the rest in "
    "backward, where autograd can see it.",
    "untouched": "Look for what works in place: a method that ends in _, +=, *=, out=, or an assignment to x[...].",
    "stateless": "Look for what two calls share: an attribute of the class, a global, a tensor changed in backward.",
    "guarded": "Look at where forward leaves its tensors: each that backward needs belongs in ctx.save_for_backward.",
    "allowed": "Write the step that the message names yourself, from the operations that the task allows.",
    "by hand": "Follow the gradient: which part of it does torch's autograd compute, and not your backward?",
    "source": "Write the line that the message names in another way.",
    "keeps": "List what your setup_context saves. Which of it could backward do without?",
    "bytes": "Count the bytes of what you save: elements times the size of the dtype. Which tensor is the large one?",
    "largest": "Look for the one line that makes a tensor of the full size, and do it tile by tile.",
    "peak": "Which large tensors are alive at the same time? Let go of one before the next is made.",
    "counts": "Count the calls for a small input by hand. Which of them repeats work that was done before?",
    "stream": "Compare where your code draws random numbers with where torch's does.",
}
PLAIN = {  # where the task is a plain function, without a forward and a backward of its author's
    "runs": "Run the code below, and look in the traceback for the last line that is yours.",
    "returns": "Look at the return statement at the end of your function: what is its type?",
    "function": "Follow your result back to the input: which step cuts it off, by detach, by item(), or under no_grad?",
    "second order": "Which part of your result does autograd not see: is one detached, turned into a number by "
    "item(), or computed under no_grad?",
    "stateless": "Look for what two calls share: a global, an attribute of the function, a tensor changed in place.",
    "guarded": "Look for what your function keeps beside torch's own graph, and let autograd keep it.",
    "keeps": "List what your function leaves behind for the backward. What of it could do without?",
}


def next_step(verdict: Verdict) -> str:
    """Return what to try after a failed check, in a sentence."""
    called = f"{verdict.task}.apply(" in verdict.code or f"{verdict.task}.apply," in verdict.code
    words = NEXT if called or not verdict.code else NEXT | PLAIN
    said = words.get(verdict.look, "") if not verdict.mistake else NAMED
    raised = verdict.look == "runs" and "raised" in verdict.evidence
    if not verdict.mistake and (raised or NO_RETURN in verdict.message):
        said = CURED
    if not verdict.mistake and verdict.look in ("value", "gradient") and verdict.evidence.get("yours") == "nan":
        said = NAN
    if "code below" in said and not verdict.code:
        said = ""
    return said.format(task=verdict.task)
