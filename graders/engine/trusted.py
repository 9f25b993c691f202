"""Grade cells: they run here, in the grader's process, and never where student code runs."""

import ast
import builtins
import io
import symtable
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout

from nbformat import NotebookNode
from nbformat.v4 import new_output

from graders.engine.kernel import KernelGone, OutOfTime
from graders.engine.sandbox import NoMemory, SandboxError
from graders.judge.proxy import DESK, Desk, Proxy
from graders.judge.verdict import SHOWN


class Bench:
    """Runs the grade cells of one notebook, one after the other, in one namespace.

    A name that they do not bind themselves is looked up among the released cells: if an answer cell binds it, it is
    the student's and a proxy stands for it; else, if another locked cell binds it (an import, a helper), it runs here.

    Args:
        given: the sources of locked cells that are no grade cells.
        answers: the sources of the released answer cells.
    """

    def __init__(self, given: Iterable[str], answers: Iterable[str]) -> None:
        self.names: dict[str, object] = {"__builtins__": builtins, "__name__": "__main__"}
        self._theirs = {name for source in answers for name in _bound(source)}
        self._given = {name: source for source in given for name in _bound(source)}

    def run(self, source: str, desk: Desk) -> list[NotebookNode]:
        """Run a grade cell; return what it prints, its verdicts, its last expression's value or its error.

        Raises:
            KernelGone, OutOfTime, SandboxError, NoMemory: `desk` did; what else is raised ends in the outputs.
        """
        printed, complaints = io.StringIO(), io.StringIO()
        outputs: list[NotebookNode] = []
        verdicts: list[dict[str, object]] = []
        token, shown = DESK.set(desk), SHOWN.set(verdicts)
        try:
            with redirect_stdout(printed), redirect_stderr(complaints):
                value = self._evaluate(source, desk)
        except (KernelGone, OutOfTime, SandboxError, NoMemory):
            raise
        except Exception as error:
            lines = [f"{type(error).__name__}: {error}"]
            outputs = [new_output("error", ename=type(error).__name__, evalue=str(error), traceback=lines)]
        else:
            if value is not None:
                outputs = [new_output("execute_result", data={"text/plain": repr(value)}, execution_count=None)]
        finally:
            SHOWN.reset(shown)
            DESK.reset(token)
        streams = [
            new_output("stream", name=name, text=stream.getvalue())
            for name, stream in (("stdout", printed), ("stderr", complaints))
            if stream.getvalue()
        ]
        return streams + [new_output("display_data", data) for data in verdicts] + outputs

    def _evaluate(self, source: str, desk: Desk) -> object:
        tree = ast.parse(source, "<grade cell>")
        for name in [n for n, v in self.names.items() if isinstance(v, Proxy)]:
            del self.names[name]  # of an earlier cell, and its desk
        for name in _free(source):
            self._provide(name, desk)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, "<grade cell>", "exec"), self.names)
        if not isinstance(last, ast.Expr):
            return None
        return eval(compile(ast.Expression(last.value), "<grade cell>", "eval"), self.names)

    def _provide(self, name: str, desk: Desk) -> None:
        if name in self.names or hasattr(builtins, name):
            return
        if name not in self._theirs and name in self._given:
            source = self._given[name]
            for other in _bound(source):
                self._given.pop(other, None)
            for needed in _free(source):
                self._provide(needed, desk)
            exec(compile(source, "<released cell>", "exec"), self.names)
        else:
            self.names[name] = Proxy(name, desk)


def _tables(source: str) -> list[symtable.SymbolTable]:
    try:
        todo = [symtable.symtable(source, "<cell>", "exec")]
    except (SyntaxError, ValueError):
        return []  # a magic, say
    found = []
    while todo:
        table = todo.pop()
        found.append(table)
        todo += table.get_children()
    return found


def _bound(source: str) -> set[str]:
    """The names that a cell binds."""
    tables = _tables(source)
    return {s.get_name() for s in tables[0].get_symbols() if s.is_assigned() or s.is_imported()} if tables else set()


def _free(source: str) -> set[str]:
    """The names that a cell takes from outside."""
    used = {
        s.get_name()
        for table in _tables(source)
        for s in table.get_symbols()
        if s.is_referenced() and (s.is_global() or table.get_type() == "module")
    }
    return used - _bound(source)
