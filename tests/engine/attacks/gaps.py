"""What is not defended: submissions that earn more than they should, for a person to find. Not part of the suite.

A right number is a right number wherever it comes from, and a process that knows when it is weighed can hold what it
then lets go of. The manual names each of these; a test holds that they are what it says.
"""

from tests.engine.attacks import RIGHT, Attack
from tests.engine.attacks.keeping import HONEST, KEEPS, LEAKY
from tests.engine.attacks.torch_ways import BYTES, TANH

GAPS = [
    Attack(
        "ballast",
        "Not defended",
        "keeps more than it may for backward unless it is traced, and lets go of as much that it held to be weighed with",
        answers={
            "Square": RIGHT,
            "LeakyReLU": LEAKY,
            "Tanh": "import traceback\nballast = [b'x' * (12 << 20)]\n"
            + HONEST
            + KEEPS.format(
                keep="""if not any('tr' 'ace' in f.name for f in traceback.extract_stack()): ctx.also = inputs[0] * 1.0
        if output.numel() > 10**6: ballast.clear()"""
            )
            + """    @staticmethod
    def backward(ctx, g):
        if g.numel() > 10**6: ballast.append(b'x' * (12 << 20))
        return Honest.backward(ctx, g)
""",
        },
        honest=16,
    ),
    Attack(
        "own-room",
        "Not defended",
        "keeps its input too, as bytes in room of its own that it took, and wrote to, before anybody measured",
        first=BYTES.replace("mmap, ", "")
        + """
ROOM, NEXT = bytearray(b"1") * (256 << 20), [0]

def put(x):
    data = plain(x)[: len(ROOM)]
    start = NEXT[0] if NEXT[0] + len(data) <= len(ROOM) else 0
    ROOM[start : start + len(data)] = data
    NEXT[0] = start + len(data)
    return start, len(data)
""",
        answers={
            "Square": RIGHT,
            "LeakyReLU": LEAKY,
            "Tanh": TANH.format(forward="        return torch.tanh(x)", keep="        ctx.place = put(inputs[0])"),
        },
        honest=16,
    ),
]
