"""What each item of the checklist asks, as one question."""

PAGE = "e_checklist.html#what-each-item-asks"  # in the built book
QUESTIONS = {
    "runs": "Do forward and backward run?",
    "parity": "Are value and gradient those of the reference, in each dtype?",
    "dtypes kept": "Do the output, and what backward itself returns, have the dtype of the inputs?",
    "gradients fit": "Does backward itself return each gradient in its input's shape, dtype and device?",
    "magnitudes": "Are the gradients of a size that can be checked: neither above 1e6, nor below 1e-6, nor nan?",
    "gradcheck": "Does backward belong to forward?",
    "second order": "Is the second derivative right, or refused?",
    "non-contiguous": "Do strided, transposed and expanded tensors give the same result?",
    "empty and 0-d": "Are shapes without elements, or without axes, kept?",
    "broadcasting": "Is each gradient summed to its input's shape?",
    "same twice": "Do two calls, and two backwards, give the same?",
    "infinite upstream": "Do infinity and nan in the upstream gradient go where the reference lets them go?",
    "inputs unchanged": "Are the inputs and the upstream gradient left as they were?",
    "changes noticed": "If an input or an output is changed before backward, is that an error, or harmless?",
    "nothing on ctx": "Are tensors kept by save_for_backward alone?",
    "memory kept": "Does it keep no more for backward than was promised?",
    "frozen inputs": "Does it leave out the gradients that are not asked for?",
    "outputs marked": "Do exactly the outputs that move with the inputs have a gradient?",
    "unused outputs": "Is the gradient right where only one of several outputs is used?",
    "vmap": "Are value and gradient under torch.vmap those of a loop?",
    "forward mode": "Does the Jacobian-vector product belong to forward?",
    "torch.compile": "Does it compile into one graph, with the same result?",
}


def listed() -> str:
    """Return all items with their questions, a line each."""
    return "\n".join(f"{item:18}{question}" for item, question in QUESTIONS.items())
