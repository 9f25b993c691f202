"""What stops a whole command."""


class CourseError(Exception):
    """Something that keeps a whole command from running; its text is one line with a remedy."""
