"""What is not defended: submissions that earn more than they should, for a person to find. Not part of the suite.

A right number is a right number wherever it comes from, and a process that knows when it is weighed can hold what it
then lets go of. The manual names each of these; a test holds that they are what it says.
"""

from tests.engine.attacks import RIGHT, Attack
from tests.engine.attacks.keeping import HONEST, KEEPS, LEAKY

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
]
