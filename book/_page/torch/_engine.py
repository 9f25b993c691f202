"""From outputs back to leaves: the order of the steps, the errors on the way, and what is collected."""

import heapq

from ._base import broadcast, fail, refuse
from ._ops import reshape, sum_, to_dtype
from ._tensor import Accumulate, Mode, Tensor, clone, edge, make

SEVERAL = "grad can be implicitly created only for scalar outputs"
UNUSED = " appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior."


class grad_mode:
    """Record operations, or do not, inside ``with`` or a decorated function."""

    wanted = False

    def __init__(self, *args, **kwargs):
        self._before = []
        self._args = args
        if kwargs or len(args) > 1 or (args and not callable(args[0])):
            refuse("this form of no_grad")

    def __enter__(self):
        self._before.append(Mode.enabled)
        Mode.enabled = self.wanted
        return None

    def __exit__(self, *error):
        Mode.enabled = self._before.pop()
        return False

    def __call__(self, *args, **kwargs):
        mode = self

        def inside(f):
            def called(*args, **kwargs):
                with mode:
                    return f(*args, **kwargs)

            return called

        if self._args:
            return inside(self._args[0])(*args, **kwargs)
        return inside(args[0])


class no_grad(grad_mode):
    """Do not record operations."""

    wanted = False


class enable_grad(grad_mode):
    """Record operations, inside no_grad too."""

    wanted = True


def summed_to(g, shape):
    """Return a gradient summed to the shape of the input, which was broadcast."""
    lead = len(g._shape) - len(shape)
    dims = list(range(lead)) + [lead + i for i, n in enumerate(shape) if n == 1 and g._shape[lead + i] != 1]
    if dims:
        g = sum_(g, dims, True)
    return reshape(g, shape) if lead else g


def fitting(g, shape, kind, who, at):
    """Return a gradient as its input has shape and dtype, or raise as the engine does."""
    if g._shape != shape:
        good = len(g._shape) >= len(shape)
        if good:
            lead = len(g._shape) - len(shape)
            good = all([n == 1 or n == g._shape[lead + i] for i, n in enumerate(shape)])
        if not good:
            fail(
                RuntimeError,
                "Function "
                + who
                + " returned an invalid gradient at index "
                + str(at)
                + " - got "
                + str(list(g._shape))
                + " but expected shape compatible with "
                + str(list(shape)),
            )
        g = summed_to(g, shape)
    if g.dtype is not kind:
        g = to_dtype(g, kind)
    return g


def run(outputs, grads, keep, create, targets):
    """Run the graph; return the gradients of the targets, where there are some."""
    roots = []
    for i, t in enumerate(outputs):
        to = edge(t) if t.requires_grad else None
        if to is None:
            fail(
                RuntimeError,
                "element " + str(i) + " of tensors does not require grad and does not have a grad_fn",
            )
        roots.append(to)
    wanted = {}
    if targets is not None:
        for i, t in enumerate(targets):
            if not t.requires_grad:
                fail(RuntimeError, "One of the differentiated Tensors does not require grad")
            to = edge(t)
            if to is None:
                refuse("a gradient by a view made without gradients")
            node, nr = to
            wanted.setdefault(id(node), {}).setdefault(nr, []).append(i)
    waits = {}
    nodes = {}
    order = []
    todo = [node for node, _ in roots]
    while todo:
        node = todo.pop()
        if id(node) in nodes:
            continue
        nodes[id(node)] = node
        order.append(node)
        for e in node._edges:
            if e is not None:
                child = e[0][0]
                waits[id(child)] = waits.get(id(child), 0) + 1
                todo.append(child)
    needed = None
    if targets is not None:
        needed = _needed(nodes, wanted)
    found = [None] * (len(targets) if targets is not None else 0)
    buffers = {}
    ready = []
    was = Mode.enabled
    Mode.enabled = create
    try:
        for (node, nr), g, t in zip(roots, grads, outputs):
            g = fitting(g, t._shape, t.dtype, "", 0) if g is not None else None
            _put(buffers, node, nr, g)
        queued = {}
        for node, _ in roots:
            if waits.get(id(node), 0) == 0 and id(node) not in queued:
                queued[id(node)] = True
                heapq.heappush(ready, (-node._seq, id(node)))
        while ready:
            _, key = heapq.heappop(ready)
            node = nodes[key]
            incoming = buffers.pop(key, None)
            incoming = incoming if incoming is not None else {}
            gs = [incoming.get(i) for i in range(node._outputs)]
            runs = needed is None or needed.get(key, False)
            if node._hooks and not runs and key in wanted:
                _hook(node, gs)
            if key in wanted:
                for nr, places in wanted[key].items():
                    for i in places:
                        found[i] = gs[nr]
            if node._hooks and runs:
                _hook(node, gs)
            if runs and not (targets is not None and isinstance(node, Accumulate)):
                out = _step(node, gs, keep)
            else:
                out = None
            for i, e in enumerate(node._edges):
                if e is None:
                    continue
                (child, nr), shape, kind = e
                if out is not None:
                    g = out[i] if i < len(out) else None
                    if g is not None:
                        g = fitting(g, shape, kind, node.name(), i)
                    if needed is None or needed.get(id(child), False) or id(child) in wanted:
                        _put(buffers, child, nr, g)
                waits[id(child)] -= 1
                if waits[id(child)] == 0:
                    heapq.heappush(ready, (-child._seq, id(child)))
    finally:
        Mode.enabled = was
    return found


def _needed(nodes, wanted):
    """Return which nodes have to run for what is wanted: those with a way to it that is longer than nothing."""
    reach = {}
    todo = list(nodes.values())
    stack = []
    for start in todo:
        if id(start) in reach:
            continue
        stack.append((start, False))
        while stack:
            node, done = stack.pop()
            key = id(node)
            if done:
                reach[key] = any(
                    [id(e[0][0]) in wanted or reach.get(id(e[0][0]), False) for e in node._edges if e is not None]
                )
                continue
            if key in reach:
                continue
            reach[key] = False
            stack.append((node, True))
            for e in node._edges:
                if e is not None and id(e[0][0]) not in reach:
                    stack.append((e[0][0], False))
    return reach


class Handle:
    """What takes a hook away."""

    def __init__(self, hooks, hook):
        self._hooks = hooks
        self._hook = hook
        hooks.append(hook)

    def remove(self):
        """Take the hook away."""
        self._hooks[:] = [h for h in self._hooks if h is not self._hook]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.remove()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        refuse("a hook's " + name)


def _hook(node, gs):
    """Call the hooks of a node with the gradients of its outputs, and put in their place what they return."""
    for nr, hook in list(node._hooks):
        g = gs[nr]
        if g is None:
            refuse("a hook on what gets no gradient")
        out = hook(g)
        if out is None:
            continue
        if not isinstance(out, Tensor):
            fail(TypeError, "expected Variable, but hook returned '" + type(out).__name__ + "'")
        text = "hook '" + getattr(hook, "__name__", "") + "' has changed the "
        if out.dtype is not g.dtype:
            text += "type of value (was " + g.dtype._tensor + " got " + out.dtype._tensor + ")"
            fail(RuntimeError, text)
        if out._shape != g._shape:
            fail(RuntimeError, text + "size of value")
        gs[nr] = out


def _put(buffers, node, nr, g):
    buffer = buffers.setdefault(id(node), {})
    if g is None:
        return
    old = buffer.get(nr)
    if old is None or old._void:
        buffer[nr] = g
    elif not g._void:
        buffer[nr] = old + g


def _step(node, gs, keep):
    if all([g is None for g in gs]) and not node._always:
        out = [None] * len(node._edges)
    else:
        out = node._apply(gs)
    if not keep:
        node._free()
    return out


def _tuple(value):
    return (value,) if isinstance(value, Tensor) else tuple(value)


def first_grads(outputs, grads):
    """Return a gradient for each output: those given, or 1 for a number."""
    if len(grads) != len(outputs):
        refuse("another number of gradients than of outputs")
    out = []
    for i, (t, g) in enumerate(zip(outputs, grads)):
        if g is None:
            if t.requires_grad:
                n = 1
                for size in t._shape:
                    n *= size
                if n != 1:
                    fail(RuntimeError, SEVERAL)
                if not t.dtype.is_floating_point:
                    refuse("a gradient of whole numbers")
                g = make([1.0], t._shape, t.dtype)
            out.append(g)
            continue
        if not isinstance(g, Tensor):
            fail(
                TypeError,
                "gradients can be either Tensors or None, but got " + type(g).__name__,
            )
        if g._shape != t._shape:
            fail(
                RuntimeError,
                "Mismatch in shape: grad_output["
                + str(i)
                + "] has a shape of "
                + str(g.shape)
                + " and output["
                + str(i)
                + "] has a shape of "
                + str(t.shape)
                + ".",
            )
        out.append(g)
    return out


def backward(t, gradient=None, retain_graph=None, create_graph=False, inputs=None, **other):
    """Collect the gradient of t in the leaves."""
    if other or inputs is not None:
        refuse("backward in this form")
    grads = first_grads([t], [gradient])
    run([t], grads, bool(create_graph if retain_graph is None else retain_graph), bool(create_graph), None)


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    only_inputs=True,
    allow_unused=None,
    is_grads_batched=False,
    materialize_grads=False,
    **other,
):
    """Return the gradients of outputs by inputs."""
    if other or is_grads_batched or materialize_grads or not only_inputs:
        refuse("grad in this form")
    outputs, inputs = _tuple(outputs), _tuple(inputs)
    for t in outputs + inputs:
        if not isinstance(t, Tensor):
            refuse("grad of what is no tensor")
    if not inputs:
        fail(RuntimeError, "`inputs` argument to `grad()` cannot be empty.")
    if not outputs:
        refuse("grad without outputs")
    grads = [None] * len(outputs) if grad_outputs is None else _tuple(grad_outputs)
    grads = first_grads(outputs, grads)
    found = run(
        outputs, grads, bool(create_graph if retain_graph is None else retain_graph), bool(create_graph), inputs
    )
    if not allow_unused:
        for i, g in enumerate(found):
            if g is None:
                fail(RuntimeError, "The differentiated Tensor at index " + str(i) + UNUSED)
    return tuple(found)


__all__ = ["backward", "broadcast", "clone", "edge", "enable_grad", "grad", "no_grad"]
