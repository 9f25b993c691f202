"""What stops all executions."""


class PoolError(Exception):
    """The work cannot go on anywhere; its text is one line with a remedy."""
