"""What is not defended: submissions that earn more than they should, for a person to find. Not part of the suite.

A right number is a right number wherever it comes from; a process that holds more than can be weighed may let go of it,
or write over it. The manual names each of these; a test holds that they are what it says.
"""

from tests.engine.attacks import Attack
from tests.engine.attacks.keeping import room

GAPS = [
    Attack(
        "grand-room",
        "Not defended",
        "keeps its input too, as bytes in 900 MB of its own that it took, and wrote to, before anybody measured",
        **room(900, used=True),
        honest=16,
        sees="MB held before it weighed",
    ),
    Attack(
        "own-ring",
        "Not defended",
        "keeps its input too, which it does not need, in room of its own that it writes over when it is full",
        **room(64, used=False),
        honest=16,
    ),
]
