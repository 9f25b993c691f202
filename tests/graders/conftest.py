"""An operation in a forked child, behind a pipe."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from graders.inside.operation import Operation, Responder, receive, send, serve

torch.set_num_threads(1)  # while modules of tests are loaded


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """A child of this process would wait for threads that another test has started here, and a child has not."""
    torch.set_num_threads(1)


@contextmanager
def _forked(get: Callable[[], Callable]) -> Iterator[Operation]:
    """An operation whose code runs in a child of this process; every message goes through a pipe."""
    ask_read, ask_write = os.pipe()
    answer_read, answer_write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(ask_write), os.close(answer_read)
            with open(ask_read, "rb") as source, open(answer_write, "wb") as sink:
                serve(Responder(get), source, sink)
            status = 0
        finally:
            os._exit(status)
    os.close(ask_read), os.close(answer_write)
    with open(answer_read, "rb") as source, open(ask_write, "wb") as sink:

        def ask(message: dict) -> dict:
            send(sink, message)
            return receive(source)

        yield Operation(ask)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def forked() -> Callable:
    """``with forked(get) as operation``."""
    return _forked
