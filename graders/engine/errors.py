"""What stops all executions, or the reading of one submission."""


class PoolError(Exception):
    """The work cannot go on anywhere; its text is one line with a remedy."""


class Overspent(Exception):
    """What a student wrote could not be read within the limits; its text goes on from "it": "took more than ..."."""
