"""Which mistake is named where an answer does what a known mistake does, but at the edges."""

import pytest
import torch
from torch.autograd import Function

import graders.sets
from graders.inside.operation import local
from graders.inside.records import Case
from graders.judge.looks import ordinary
from graders.judge.task import Task
from graders.sets.linear.linear import LinearNew
from graders.sets.sigmoid.cube import CubeNew


def task(set_name: str, name: str) -> Task:
    """A task of a set."""
    return next(t for t in graders.sets.module(set_name).TASKS if t.name == name)


class DividedByTheRows(LinearNew):
    """A known mistake, spelled so that a batch of no rows gives nan."""

    @staticmethod
    def backward(ctx, g):
        grad_x, grad_weight, grad_bias = LinearNew.backward(ctx, g)
        rows = g.numel() // g.shape[-1]
        return grad_x, grad_weight / rows, None if grad_bias is None else grad_bias / rows


class FailsForNothing(CubeNew):
    """A known mistake, in which an input of no elements raises."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        x.max()
        return g * 2 * x**2


class WrongAtTheEdges(CubeNew):
    """Right, but that an input of no elements raises: no known mistake."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        x.max()
        return g * 3 * x**2


class NearlyTheFactor(CubeNew):
    """Wrong in every case, by a factor that no mistake has."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2.01 * x**2


class OfAnotherKindOnce(CubeNew):
    """A known mistake, but in matrices, where it is another one."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (2 if x.ndim != 2 else 4) * x**2


@pytest.mark.parametrize(
    ("set_name", "name", "answer", "mistake"),
    [
        ("linear", "Linear", DividedByTheRows, "batch_averaged"),
        ("sigmoid", "Cube", FailsForNothing, "factor_two"),
        ("sigmoid", "Cube", WrongAtTheEdges, ""),
        ("sigmoid", "Cube", NearlyTheFactor, ""),
        ("sigmoid", "Cube", OfAnotherKindOnce, ""),
    ],
)
def test_the_edges_do_not_hide_a_mistake(set_name: str, name: str, answer: type[Function], mistake: str) -> None:
    verdict = task(set_name, name).judge("gradient", local(answer.apply))
    assert verdict.earned == 0 and verdict.mistake == mistake, str(verdict)


@pytest.mark.parametrize(
    ("args", "upstream", "is_one"),
    [
        ((torch.ones(3, dtype=torch.float64), 2), None, True),
        ((torch.ones(2, 3, dtype=torch.float64),), torch.full((2, 3), 1e9), False),
        ((torch.ones(3),), None, False),
        ((torch.ones(0, dtype=torch.float64),), None, False),
        ((torch.ones((), dtype=torch.float64),), None, False),
        ((torch.full((3,), torch.inf, dtype=torch.float64),), None, False),
    ],
)
def test_what_an_ordinary_case_is(args: tuple, upstream: torch.Tensor | None, is_one: bool) -> None:
    assert ordinary(Case("a case", args, upstream=upstream)) is is_one
