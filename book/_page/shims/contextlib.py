"""Python's contextlib: contextmanager, suppress and nullcontext."""

from torch._base import lacking


class _Manager:
    def __init__(self, f, args, kwargs):
        self._made = f, args, kwargs
        self._steps = f(*args, **kwargs)

    def __enter__(self):
        self._made = None
        for value in self._steps:
            return value
        raise RuntimeError("generator didn't yield")

    def __exit__(self, kind, error, trace):
        if kind is None:
            for _ in self._steps:
                raise RuntimeError("generator didn't stop")
            return False
        if error is None:
            error = kind()
        try:
            self._steps.throw(error)
        except StopIteration as stopped:
            return stopped is not error
        except BaseException as raised:
            if raised is not error:
                raise
            return False
        raise RuntimeError("generator didn't stop after throw()")

    def __call__(self, g):
        f, args, kwargs = self._made

        def inside(*a, **k):
            with _Manager(f, args, kwargs):
                return g(*a, **k)

        return inside


def contextmanager(f):
    """Make a generator that yields once what with takes."""

    def made(*args, **kwargs):
        return _Manager(f, args, kwargs)

    return made


class suppress:
    """A block out of which some exceptions do not get."""

    def __init__(self, *kinds):
        self._kinds = kinds

    def __enter__(self):
        return None

    def __exit__(self, kind, error, trace):
        return kind is not None and issubclass(kind, self._kinds)


class nullcontext:
    """A block that is no other than without it."""

    def __init__(self, enter_result=None):
        self.enter_result = enter_result

    def __enter__(self):
        return self.enter_result

    def __exit__(self, *error):
        return False


__getattr__ = lacking("contextlib")
