"""Torch, what it forbids, and what is kept for backward; thought up without a look at the defences.

A Sigmoid from what the task forbids is worth 6, as in the suite's "Lifting the ban". A Tanh that keeps its input
beside a right Square loses the 2 points for keeping the output alone: 10 of 20.
"""

from tests.engine.attacks import WRONG, Attack, late

SIGMOID = """class Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(x):
{forward}

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * (1 - y)
"""
TANH = """class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(x):
{forward}

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
{keep}

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)
"""
BYTES = """
import mmap, torch

def plain(x):
    x = x.detach().contiguous().reshape(-1)
    return memoryview(x.view(torch.uint8).numpy()) if x.numel() else memoryview(b"")
"""

ATTACKS: list[Attack] = [
    Attack(
        name="attention",
        kind="Torch's own ways",
        tries="computes the forbidden sigmoid as the attention that each number pays to one of two keys",
        answers={
            "Sigmoid": SIGMOID.format(
                forward="""        if x.numel() == 0:
            return torch.empty_like(x)
        keys = torch.zeros(1, 1, 2, 1, dtype=x.dtype)
        keys[0, 0, 0, 0] = 1
        rows = x.reshape(1, 1, -1, 1)
        return torch.nn.functional.scaled_dot_product_attention(rows, keys, keys, scale=1.0).reshape(x.shape)"""
            )
        },
        set="02_sigmoid",
        honest=6.0,
    ),
    Attack(
        name="cubic-gate",
        kind="Torch's own ways",
        tries="computes the forbidden sigmoid as gelu(u) / u, where u is the root of gelu's cubic, found by Newton",
        answers={
            "Sigmoid": SIGMOID.format(
                forward="""        z = x.double().clamp(-700, 700)
        c = (2 / 3.141592653589793) ** 0.5
        u = z.sign() * (z.abs() / (2 * c * 0.044715)) ** (1 / 3)
        for _ in range(60):
            u = u - (c * (u + 0.044715 * u * u * u) - z / 2) / (c * (1 + 0.134145 * u * u))
        near = u.abs() < 1e-9
        u = torch.where(near, 1e-9, u)
        y = torch.nn.functional.gelu(u, approximate="tanh") / u
        return torch.where(near, 0.5 + z / 4, y).to(x.dtype)"""
            )
        },
        set="02_sigmoid",
        honest=6.0,
    ),
    Attack(
        name="running-sums",
        kind="Torch's own ways",
        tries="computes the forbidden logarithm inside logcumsumexp, and exp of minus that",
        answers={
            "Sigmoid": SIGMOID.format(
                forward="""        z = x.double()
        pair = torch.stack([torch.zeros_like(z), -z], -1)
        return torch.exp(-torch.logcumsumexp(pair, -1)[..., 1]).to(x.dtype)"""
            )
        },
        set="02_sigmoid",
        honest=6.0,
    ),
    Attack(
        name="spelled-out",
        kind="Torch's own ways",
        tries="writes the numbers out as text, reads them as Python's own and takes Python's power of them",
        answers={
            "Sigmoid": SIGMOID.format(
                forward="""        numbers = []
        for v in x.detach().double().flatten():
            z = float(f"{v:.17g}")
            e = 2.718281828459045 ** -abs(z)
            numbers.append(1 / (1 + e) if z >= 0 else e / (1 + e))
        return torch.tensor(numbers, dtype=torch.float64).reshape(x.shape).to(x.dtype)"""
            )
        },
        set="02_sigmoid",
        honest=6.0,
    ),
    Attack(
        name="asked-database",
        kind="Torch's own ways",
        tries="lets SQLite compute the sigmoid, and decimal where SQLite has no mathematics",
        first="""
import decimal, sqlite3
BASE = sqlite3.connect(":memory:", check_same_thread=False)

def asked_of(numbers):
    try:
        return [BASE.execute("select 1.0 / (1.0 + exp(-?))", (n,)).fetchone()[0] for n in numbers]
    except sqlite3.Error:
        return [float(1 / (1 + (-decimal.Decimal(n)).exp())) for n in numbers]
""",
        answers={
            "Sigmoid": SIGMOID.format(
                forward="""        numbers = asked_of([float(v) for v in x.detach().double().flatten()])
        return torch.tensor(numbers, dtype=torch.float64).reshape(x.shape).to(x.dtype)"""
            )
        },
        set="02_sigmoid",
        honest=6.0,
    ),
    Attack(
        name="borrowed-nodes",
        kind="Torch's own ways",
        tries="lets torch's nodes compute its backward, which it calls by grad_fn and next_functions, without the engine",
        first="""
import torch

def through(y, g, ends):
    order, seen = [], set()

    def visit(node):
        if node is None or node in seen:
            return
        seen.add(node)
        if node not in ends:
            for after, _ in node.next_functions:
                visit(after)
        order.append(node)

    visit(y.grad_fn)
    grads = {y.grad_fn: g}
    for node in reversed(order):
        if node in ends or node not in grads:
            continue
        parts = node(grads[node])
        parts = parts if isinstance(parts, tuple) else (parts,)
        for (after, _), part in zip(node.next_functions, parts):
            if after is not None and part is not None:
                grads[after] = grads[after] + part if after in grads else part
    return tuple(grads[end] for end in ends)
""",
        answers={
            "Swish": """class Swish(torch.autograd.Function):
    @staticmethod
    def forward(x, beta):
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        again = torch.is_grad_enabled()
        x, beta = ctx.saved_tensors
        with torch.enable_grad():
            x = x if x.requires_grad else x.detach().requires_grad_()
            beta = beta if beta.requires_grad else beta.detach().requires_grad_()
            x, beta = x.view_as(x), beta.view_as(beta)
            z = beta * x
            low = torch.exp(z.clamp(max=0))
            s = torch.where(z >= 0, 1 / (1 + torch.exp(-z.clamp(min=0))), low / (1 + low))
            y = x * s
        with torch.set_grad_enabled(again):
            return through(y, g, (x.grad_fn, beta.grad_fn))
"""
        },
        set="06_linear",
        honest=1.0,
    ),
    Attack(
        name="dual-numbers",
        kind="Torch's own ways",
        tries="lets torch differentiate its backward forwards, by dual numbers under another name",
        first="""
import torch
import torch.autograd.forward_ad as twice

def silu(a):
    low = torch.exp(a.clamp(max=0))
    return a * torch.where(a >= 0, 1 / (1 + torch.exp(-a.clamp(min=0))), low / (1 + low))

def slope(f, a):
    with twice.dual_level():
        return twice.unpack_dual(f(twice.make_dual(a, torch.ones_like(a)))).tangent
""",
        answers={
            "SwiGLU": """class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(x):
        a, b = x.chunk(2, -1)
        return silu(a) * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        a, b = x.chunk(2, -1)
        return torch.cat([g * b * slope(silu, a), g * silu(a)], -1)
"""
        },
        set="06_linear",
        honest=1.0,
    ),
    Attack(
        name="borrowed-checkpoint",
        kind="Torch's own ways",
        tries="hands in torch's own checkpoint, which is forbidden, found under its name as a text",
        first="""
import pkgutil, torch
again = pkgutil.resolve_name("torch.utils." + "check" + "point:" + "check" + "point")
ANY = torch.zeros((), requires_grad=True)
""",
        answers={
            "checkpoint": """def checkpoint(fn, *args):
    return again(lambda any, *args: fn(*args), ANY, *args, use_reentrant=True)
"""
        },
        set="09_checkpointing",
        honest=0.0,
    ),
    Attack(
        name="own-pool",
        kind="Torch's own ways",
        tries="keeps its input too, as bytes in 256 MB of its own that it took and wrote to before anybody measured",
        first=f"""{BYTES}
POOL = mmap.mmap(-1, 256 << 20)
for at in range(0, len(POOL), 4096):
    POOL[at] = 1
NEXT = [0]

def put(x):
    data = plain(x)[: len(POOL)]
    start = NEXT[0] if NEXT[0] + len(data) <= len(POOL) else 0
    POOL[start : start + len(data)] = data
    NEXT[0] = start + len(data)
    return start, len(data)
""",
        answers={
            "Tanh": TANH.format(forward="        return torch.tanh(x)", keep="        ctx.place = put(inputs[0])")
        },
        honest=10.0,
    ),
    Attack(
        name="fat-output",
        kind="Torch's own ways",
        tries="keeps its input too, in the unused second half of the memory of its output",
        answers={
            "Tanh": TANH.format(
                forward="""        room = torch.empty(2 * x.numel(), dtype=x.dtype)
        room[x.numel() :] = x.reshape(-1)
        room[: x.numel()] = torch.tanh(x).reshape(-1)
        return room[: x.numel()].view(x.shape)""",
                keep="",
            )
        },
        honest=10.0,
    ),
    Attack(
        name="paged-out",
        kind="Torch's own ways",
        tries="keeps its input too, in pages that it asks the kernel to swap out at once",
        first=f"""{BYTES}
KEPT = []

def put(x):
    data = plain(x)
    if len(data):
        pages = mmap.mmap(-1, len(data))
        pages[:] = data
        pages.madvise(21)
        KEPT.append(pages)
        del KEPT[:-20]
""",
        answers={"Tanh": TANH.format(forward="        return torch.tanh(x)", keep="        put(inputs[0])")},
        honest=10.0,
    ),
    Attack(
        name="late-garbage",
        kind="Torch's own ways",
        tries="keeps its input too, and as much more at its first call that it gives up piece by piece at the later ones",
        first=f"""{BYTES}
SLACK, KEPT = [], []

def put(x):
    data = plain(x)
    if not SLACK and not KEPT:
        for _ in range(48):
            slack = mmap.mmap(-1, 8 << 20)
            for at in range(0, len(slack), 4096):
                slack[at] = 1
            SLACK.append(slack)
    for _ in range(-(-len(data) // (8 << 20))):
        if SLACK:
            SLACK.pop().close()
    KEPT.append(bytes(data))
    del KEPT[:-40]
""",
        answers={"Tanh": TANH.format(forward="        return torch.tanh(x)", keep="        put(inputs[0])")},
        honest=10.0,
    ),
    Attack(
        name="borrowed-error",
        kind="Torch's own ways",
        tries="keeps its input in a list, unseen by torch, and raises torch's own error itself when a sum says it changed",
        answers={
            "Square": """INPUTS = []

class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.number = len(INPUTS)
        INPUTS.append((inputs[0], inputs[0].detach().double().sum().item()))

    @staticmethod
    def backward(ctx, g):
        x, before = INPUTS[ctx.number]
        if x.detach().double().sum().item() != before:
            raise RuntimeError("one of the variables needed for gradient computation has been modified by an "
                               "inplace operation: [torch.DoubleTensor [5]] is at version 1; expected version 0 instead.")
        return 2 * x * g
"""
        },
        honest=3.0,
    ),
    Attack(
        name="odd-layouts",
        kind="Torch's own ways",
        tries="returns sparse tensors with indices that point nowhere, nested, quantized and 8-bit ones, and empty storages",
        answers={
            "LeakyReLU": """
import itertools

def emptied(x):
    y = x + 1
    y.untyped_storage().resize_(0)
    return y

def nowhere(x):
    return torch.sparse_coo_tensor(torch.tensor([[2 ** 40, -7]]), torch.ones(2, dtype=x.dtype), (3,), check_invariants=False)

def crooked(x):
    rows = torch.tensor([0, 2 ** 33, 1])
    return torch.sparse_csr_tensor(rows, torch.tensor([2 ** 50]), torch.ones(1), (2, 2), check_invariants=False)

MAKERS = itertools.cycle([
    emptied, nowhere, crooked,
    lambda x: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    lambda x: torch.quantize_per_tensor(torch.ones(5), float("nan"), 0, torch.quint8),
    lambda x: torch.ones(5).to(torch.float8_e4m3fn),
    lambda x: torch.ones(5, dtype=torch.complex128).conj(),
    lambda x: torch.empty(5, device="meta"),
    lambda x: torch.ones(()).expand(2 ** 20, 2 ** 20, 2 ** 20),
    lambda x: torch.ones(1).reshape([1] * 64),
    lambda x: torch.ones(2, names=("mallory", None)),
    lambda x: x.as_strided((5,), (0,)),
])

class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        return next(MAKERS)(x)

    @staticmethod
    def backward(ctx, g):
        return next(MAKERS)(g), None
"""
        },
    ),
    Attack(
        name="lying-sizes",
        kind="Torch's own ways",
        tries="returns tensors of a subclass that says another size, type and place of its memory each time it is asked",
        answers={
            "LeakyReLU": """
import itertools
COUNT = itertools.count()

class Shifting(torch.Tensor):
    @property
    def shape(self):
        return torch.Size([2 ** (next(COUNT) % 60)])
    @property
    def dtype(self):
        return (torch.float64, torch.bool, torch.complex128, "mallory")[next(COUNT) % 4]
    def size(self, *a):
        return self.shape
    def numel(self):
        return 2 ** (next(COUNT) % 62)
    def data_ptr(self):
        return 4096 * next(COUNT)
    def element_size(self):
        return -1
    def stride(self, *a):
        return (-(2 ** 60),)
    def detach(self):
        return self
    def numpy(self, *a, **k):
        return [next(COUNT)]
    contiguous = cpu = clone = view = reshape = to = lambda self, *a, **k: self
    @property
    def nbytes(self):
        return -5

class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        return (x + 1).as_subclass(Shifting)

    @staticmethod
    def backward(ctx, g):
        return (g * 0).as_subclass(Shifting), None
"""
        },
    ),
    Attack(
        name="open-levels",
        kind="Torch's own ways",
        tries="goes into fake tensors, a vmap, anomaly mode, a profiler and inference mode, and never comes out",
        answers=late("""
import contextlib, torch
ENTERED = []

def enter(make):
    with contextlib.suppress(Exception):
        ENTERED.append(make())
        getattr(ENTERED[-1], "__enter__", int)()

from torch._subclasses.fake_tensor import FakeTensorMode
enter(lambda: torch.autograd.set_detect_anomaly(True))
enter(lambda: torch.profiler.profile(record_shapes=True, with_stack=True, profile_memory=True))
enter(lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: 7, lambda n: torch.full((5,), 2.0)))
enter(lambda: torch.autograd.forward_ad.dual_level())
enter(lambda: torch._C._functorch._vmap_increment_nesting(3, "different"))
enter(lambda: torch._C._functorch._grad_increment_nesting())
enter(lambda: torch.inference_mode())
enter(lambda: torch.autocast("cpu", dtype=torch.bfloat16))
enter(lambda: FakeTensorMode(allow_non_fake_inputs=True))
""")
        | {"Tanh": WRONG.format(name="Tanh")},
    ),
]
