"""A look at the syntax tree of a submission, for the checks that forbid something.

What torch runs is refused at the dispatcher. Here is looked for what the dispatcher does not see: other libraries, what
Python computes with its own numbers, and whatever could lift the refusal. Only the code that an answer reaches counts,
but for the last, which counts wherever it stands. Whoever hides a name well enough is not seen; a person has to look.
"""

import ast
import builtins
import re
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeGuard, TypeVar

from IPython.core.inputtransformer2 import TransformerManager

from graders.judge.looks import Forbids

SEPARATOR, LOCKED = "\0", "\1"  # between cells, and before a locked one
MAX_TEXT = 1_000_000  # characters
MAX_MAGICS = 50  # lines of a cell: IPython reads the whole cell anew for each
MAX_REREAD = 200_000  # characters that it reads so, all together: two seconds
MAX_STEPS = 100_000  # of one reading: what a name or an expression stands for is asked so often; answers need 1,000
MAX_PATH = 500  # characters of a full name


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


USUAL = {"torch": "torch", "F": "torch.nn.functional", "nn": "torch.nn", "np": "numpy", "numpy": "numpy"}
USUAL |= {"math": "math", "plt": "matplotlib.pyplot"}  # what such a name stands for where no cell imports it
USUAL |= {name: name for name in _words("functools operator timeit typing")} | {"mock": "unittest.mock"}
# modules that others hold among their names: torch.nn.init.math is math
HELD = _words("math cmath np numpy scipy sys os gc ctypes inspect importlib builtins subprocess decimal")

LIFTS = _words("""
    ctypes _ctypes cffi mmap marshal _imp graders codeop pydoc.locate types.FunctionType types.CodeType
    builtins.exec builtins.eval builtins.compile builtins.__import__ builtins.__dict__
    gc.get_objects gc.get_referrers gc.get_referents
    sys.modules sys._getframe sys._current_frames sys.settrace sys.setprofile sys.meta_path sys.path_hooks
    sys.addaudithook threading.settrace threading.setprofile
    threading.settrace_all_threads threading.setprofile_all_threads
    inspect.currentframe inspect.stack inspect.trace inspect.getouterframes inspect.getinnerframes
    inspect.getclosurevars importlib.import_module importlib.machinery importlib.abc importlib._bootstrap
    IPython.core.magic IPython.core.interactiveshell IPython.core.getipython IPython.core.events IPython.core.history
    IPython.core.macro IPython.core.alias IPython.core.extensions IPython.get_ipython IPython.extensions IPython.utils
    IPython.embed IPython.start_ipython
    torch.library torch.ops torch.classes torch.utils.cpp_extension
    pkgutil code runpy pickle _pickle typing.get_type_hints
""")
STATEMENTS = _words("timeit.timeit timeit.repeat timeit.Timer timeit.main")  # run the text that they are given
GETTERS = _words("builtins.getattr operator.attrgetter operator.methodcaller")  # by a name that may be put together
LIFTING_ATTRIBUTES = _words("""
    __globals__ __code__ __closure__ __builtins__ __subclasses__ __loader__ f_globals f_locals f_back f_builtins
    tb_frame gi_frame cr_frame cell_contents _execution_engine user_ns user_global_ns ast_transformers run_cell _ip
    run_code input_transformers_post input_transformers_cleanup
""")
# what begins with an underscore is no business of a course's, trees and lists of tensors apart
PRIVATE = re.compile(r"torch(\.\w+)*\._(?!_|pytree|foreach|assert)\w+")
# what nobody refuses and no exercise needs: the machine, other processes, files, and what outlives a cell
STRANGE = _words("""
    socket _socket subprocess _posixsubprocess multiprocessing signal resource atexit sqlite3 pty fcntl termios select
    shutil tempfile glob pathlib threading _thread faulthandler weakref.finalize concurrent.futures builtins.open
    io.open io.FileIO http urllib ftplib requests httpx torch.overrides torch.multiprocessing
    os.fork os.forkpty os.kill os.killpg os._exit os.abort os.system os.popen os.posix_spawn os.posix_spawnp os.execv
    os.execve os.execl os.execlp os.execvp os.spawnl os.spawnv os.write os.writev os.close os.closerange os.dup os.dup2
    os.open os.fdopen os.pipe os.pipe2 os.memfd_create os.read os.sendfile os.setuid os.setgid os.setreuid os.setresuid
    os.setsid os.setgroups os.getppid os.unlink os.remove os.rename os.replace os.symlink os.link os.mkfifo os.mkdir
    os.makedirs os.walk os.scandir os.listdir os.chmod os.chown os.utime os.ptrace os.register_at_fork
""")
PRETENDING = _words("""
    __torch_function__ __torch_dispatch__ __getattribute__ __del__ __instancecheck__ __subclasscheck__
""")
FORGED = re.compile(r"\d of \d+ points?\b|vnd\.graders|Right in (all )?\d+ cases")
# elsewhere harmless, but what these make or start is not the code that is read
ELSEWHERE = _words("""
    torch.jit torch.compile torch.compiler torch.export torch.fx torch.multiprocessing torch.hub torch.package
    torch.load
    subprocess multiprocessing concurrent.futures asyncio socket urllib http ssl pty os shutil runpy pkgutil importlib
    code pickle dill cloudpickle joblib builtins.open builtins.globals builtins.vars
""")
REDUCE = "functools.reduce"
PATCHES = _words("unittest.mock.patch unittest.mock.patch.dict unittest.mock.patch.multiple unittest.mock.patch.object")
EVERYWHERE = " That could hide what runs: it is refused in every cell."
IN_ANSWERS = " That could hide what runs: it is refused in an answer."
CONSTANTS = _words("pi e tau inf nan newaxis ndarray number floating integer dtype bool_ euler_gamma")
SHAPES = _words("shape ndim dtype device itemsize layout")
SIZES = _words("size dim numel nelement element_size ndimension stride is_floating_point")
OWN = ("self", "cls", "ctx")
# what IPython has among a notebook's names; what else no cell defines was put there by code that is not read
PRESENT = _words("display get_ipython __name__ __doc__ __file__ __builtins__")
MAGIC = re.compile(r"%%(time|capture|prun|timeit)\b")  # cell magics that run the cell's own code
# and those of files, pages, other processes
APART = re.compile(
    r"%%(writefile|file|html|svg|latex|markdown|javascript|js|bash|sh|script|sx|system|!|perl|ruby|python[23]?|pypy)\b",
    re.IGNORECASE,
)
TIMED = re.compile(r"(\s*)%(?:time|timeit|prun)\s+(?:-\S+\s+)*(.*)")
# line magics that neither run code nor give a name another value
HARMLESS = _words("""
    matplotlib config precision who who_ls whos pwd ls cd cat less more man mkdir pip conda uv xmode colors lsmagic
    magic quickref pinfo pinfo2 psource pdoc pdef pfile psearch history hist env set_env autoreload autosave
    doctest_mode clear reset reset_selective page notebook tb automagic pylab gui
""")
SHELL = _words("run_line_magic magic run_cell_magic system getoutput")
ASSIGNED = re.compile(r"=[\s\\]*[%!]")  # a name is given what a magic or a command returns
HIDING = re.compile(r"\s*%?(run|macro|load|loadpy|edit|store|alias_magic|rerun|recall|rep|load_ext)\b")


@dataclass(frozen=True)
class Use:
    """What was found, and where.

    Attributes:
        what: "numpy".
        line: counted within the cell.
        text: the code.
        why: what more a message says of it.
    """

    what: str
    line: int = 0
    text: str = ""
    why: str = ""

    @property
    def sentence(self) -> str:
        """What a message says of it."""
        return f"Your solution {self.what}" + (f" (line {self.line} of its cell)." if self.line else ".") + self.why

    @property
    def evidence(self) -> dict[str, str]:
        """The code itself."""
        return {"your code": self.text} if self.text else {}


def joined(cells: Iterable[str], locked: Collection[str] = ()) -> str:
    """Return the text of cells as `forbidden` takes it.

    Args:
        cells: in the order in which they ran.
        locked: those of the course: their names count, and what else they use is no student's doing.
    """
    sound = [cell for cell in cells if SEPARATOR not in cell]  # Python compiles none that holds it
    marked = [(LOCKED if cell in locked else "") + cell.replace(LOCKED, "$") for cell in sound]  # no Python, as it was
    return SEPARATOR.join(marked)


@lru_cache(maxsize=100)  # the checks of a task ask one after the other
def forbidden(source: str, answer: str, forbids: Forbids) -> Use | None:
    """Return the first thing in the submission that the task forbids.

    Args:
        source: the cells, `joined`.
        answer: the name asked for.
        forbids: what may not be there.
    """
    if len(source) > MAX_TEXT:
        return Use("is too long to be read")
    try:
        cells = [cell for text in source.split(SEPARATOR) if (cell := _cell(text)) is not None]
        return next((cell.lift for cell in cells if cell.lift), None) or _reached(_Book(cells), answer, forbids)
    except RecursionError:
        return Use("is nested too deeply to be read")
    except _TooLong:
        return Use("is too long to be read")


def suspect(cell: str) -> str:
    """Return what in a cell of the student's could lift a refusal, or reach the tests; "" for nothing.

    Returns:
        The end of a sentence that begins with the cell: "uses sys.modules (line 3)".
    """
    if len(cell) > MAX_TEXT or SEPARATOR in cell:
        return "is too long to be read" if len(cell) > MAX_TEXT else ""
    try:
        read = _cell(cell.replace(LOCKED, "$"))
    except _TooLong:
        return "is too long to be read"
    except RecursionError:
        return "is nested too deeply to be read"
    use = read.lift or read.strange if read else None
    return "" if use is None else use.what + (f" (line {use.line})" if use.line else "")


def _reached(book: "_Book", answer: str, forbids: Forbids) -> Use | None:
    """Return the first forbidden thing in the code that the answer reaches."""
    if answer not in book.bindings:
        return Use(f"cannot be found: no cell defines {answer}")
    reader, done, todo = _Reader(book, forbids), {answer}, deque([answer])
    visited: set[int] = set()  # a statement may bind many names
    while todo:
        name = todo.popleft()
        for binding in book.relevant(name):
            if id(binding.node) not in visited:
                visited.add(id(binding.node))
                reader.visit(binding.node)
            if name == answer:
                for bound, path in _imports(binding.node):
                    if bound == answer:
                        reader.judge(path, binding.node)
            if use := reader.finds() or reader.stray():
                return use
        new = reader.names - done
        reader.names.clear()
        todo += sorted(new)
        done |= new
    return None


# --- a bound on the work ----------------------------------------------------------------------------------------------

Key = TypeVar("Key")
Value = TypeVar("Value")


class _TooLong(Exception):
    """Reading takes more steps than it may."""


class _Steps:
    """The steps that a reading has left."""

    def __init__(self) -> None:
        self.left = MAX_STEPS

    def take(self, number: int = 1) -> None:
        """Take some of them.

        Raises:
            _TooLong: there were not as many.
        """
        self.left -= number
        if self.left < 0:
            raise _TooLong


class _Answers(Generic[Key, Value]):
    """Answers to questions that lead to other questions of the kind; each is looked for once.

    Args:
        circle: the answer to a question that leads back to itself.
        steps: what each search takes one of.
    """

    def __init__(self, circle: Value, steps: _Steps) -> None:
        self._circle, self._steps = circle, steps
        self._known: dict[Key, Value] = {}
        self._asked: dict[Key, int] = {}  # those that are being looked for, and how many were before them
        self._back = sys.maxsize  # the earliest of them that the present search has led back to

    def get(self, key: Key, find: Callable[[], Value]) -> Value:
        """Return the answer to a question, known or found. One that hangs on a circle is only kept by who began it."""
        if key in self._known:
            return self._known[key]
        self._steps.take()
        if key in self._asked:
            self._back = min(self._back, self._asked[key])
            return self._circle
        place, before, self._back = len(self._asked), self._back, sys.maxsize
        self._asked[key] = place
        try:
            found = find()
        finally:
            del self._asked[key]
        if self._back >= place:
            self._known[key], self._back = found, sys.maxsize
        self._back = min(self._back, before)
        return found


# --- cells ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Binding:
    """A statement that gives a name its value, or changes what it stands for."""

    name: str
    node: ast.stmt
    certain: bool  # it ran, whatever stood before it


@dataclass(frozen=True)
class _Cell:
    """What a cell does to names.

    Attributes:
        bindings: its statements that bind.
        paths: the names that it imports, with what they stand for.
        names: all names that anything in it binds.
        lift: what in it could lift a refusal.
        strange: what else in it no exercise needs.
    """

    bindings: list[_Binding]
    paths: list[tuple[str, str]]
    names: frozenset[str]
    lift: Use | None
    strange: Use | None = None


@lru_cache(maxsize=1000)  # most cells are the same in a whole class
def _cell(text: str) -> _Cell | None:
    """Read a cell without its magics; return None if it cannot have run, or is not Python."""
    lines, certain, locked = text.removeprefix(LOCKED).split("\n"), True, text.startswith(LOCKED)
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        magic = MAGIC.match(lines[first])
        if not magic:
            hides = not locked and not APART.match(lines[first])
            return _hiding(lines[first], first) if hides else None
        certain = magic[1] != "timeit"  # which runs it in a function
        lines[first] = ""
    magics = [line for line in lines if line.lstrip()[:1] in tuple("%!?,;/") or line.rstrip().endswith("?")]
    if len(magics) > MAX_MAGICS and not locked:
        return _hiding("too many magics", first)
    timed = [match.expand(r"\1\2") if (match := TIMED.match(line)) else line for line in lines]
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        tree = compile(_as_python("\n".join(timed), 0 if locked else len(magics)), "<cell>", "exec", flags)
    except (SyntaxError, ValueError, MemoryError, RuntimeError):
        # IPython takes a cell of one line for a magic even without the %
        alone = not locked and len(list(filter(str.strip, lines))) == 1
        return _hiding(lines[first], first) if alone and HIDING.match(lines[first]) else None
    lift = None if locked else next(_lifts(tree), None)
    return _Cell(
        [*_bindings(tree, certain)],
        [p for s in tree.body for n in _shallow(s) for p in _imports(n)],
        frozenset(_all_bound(tree)),
        lift and replace(lift, why=EVERYWHERE),
        None if locked else next(_strange(tree), None),
    )


def _as_python(text: str, magics: int) -> str:
    """Return a cell as IPython reads it, magics and shell commands as the calls that they become.

    Args:
        text: the cell.
        magics: how many of its lines are magics.

    Raises:
        _TooLong: for these, and for those whose value a name is given, IPython would read too much.
    """
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, MemoryError):
        magics += len(ASSIGNED.findall(text))
        if magics * len(text) > MAX_REREAD:
            raise _TooLong from None
        return TransformerManager().transform_cell(text)
    return text  # as most are: the line numbers and the text stay


def _hiding(line: str, place: int) -> _Cell:
    """Return a cell that makes IPython run what is not in it."""
    what = line if " " in line and not line.startswith("%") else line.split()[0]
    return _Cell([], [], frozenset(), Use(f"uses {what}", place + 1, line[:60], EVERYWHERE))


def _all_bound(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a cell binds, those of its classes too, but none that are local to a function."""
    todo: list[tuple[ast.AST, bool, bool]] = [(tree, False, False)]  # whether inside of a function, and local to it
    while todo:
        node, inside, local = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield "" if local else getattr(node, "name", "")
            inside = local = True
        elif isinstance(node, ast.Global) and inside:
            yield from node.names
        if local:
            body = {id(statement) for statement in node.body} if isinstance(node, ast.ClassDef) else ()
            todo += [(child, True, id(child) not in body) for child in ast.iter_child_nodes(node)]
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            yield node.name or ""
        yield from (name for name, _ in _imports(node))
        todo += [(child, inside, False) for child in ast.iter_child_nodes(node)]


def _text(node: ast.AST) -> tuple[int, str]:
    line = getattr(node, "lineno", 0)
    try:
        text = ast.unparse(node)
    except RecursionError:
        text = "..."
    return line, text if len(text) <= 60 else text[:57] + "..."


# --- what could lift a refusal ----------------------------------------------------------------------------------------


def _lifts(tree: ast.Module) -> Iterator[Use]:
    """Yield the machinery of Python and torch that an exercise has no use for, wherever it stands."""
    scope = dict(USUAL) | {name: path for node in ast.walk(tree) for name, path in _imports(node)}
    harmless = {id(c) for n in ast.walk(tree) if isinstance(n, ast.Compare) for c in n.comparators}  # in sys.modules

    known: dict[int, str | None] = {}

    def resolve(node: ast.AST) -> str | None:
        return _dotted(node, lambda n: scope.get(n) or (f"builtins.{n}" if hasattr(builtins, n) else None), known)

    bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    attributes = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    shells = {id(n.value.func): n for n in attributes if _called(n.value, "get_ipython")}
    calls = {id(n.func): n for n in ast.walk(tree) if isinstance(n, ast.Call)}
    for node in ast.walk(tree):
        if id(node) in harmless:
            continue
        if isinstance(node, ast.Name) and node.id == "get_ipython":
            method = shells.get(id(node))
            if method is None or not _harmless(method.attr, calls.get(id(method))):
                yield _shell_use(calls.get(id(method)) or node)
            continue
        paths = [path for name, path in _imports(node) if name != "get_ipython"]  # of which each use is looked at
        if isinstance(node, ast.Name | ast.Attribute | ast.Call) and (path := resolve(node)):
            paths.append("" if path.startswith("builtins.") and path.split(".")[1] in bound else path)
        for path in paths:
            if _within(path, LIFTS) or PRIVATE.match(path):
                yield Use(f"uses {path.removeprefix('builtins.')}", *_text(node))
            if isinstance(getattr(node, "ctx", None), ast.Store) and re.match(r"(torch|builtins)\.(?!backends)", path):
                yield Use(f"changes {path.removeprefix('builtins.')}", *_text(node))
        name = getattr(node, "attr", "") or getattr(node, "id", "")
        if name in LIFTING_ATTRIBUTES and isinstance(node, ast.Name | ast.Attribute):
            yield Use(f"uses {name}", *_text(node))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
            if node.func.id in ("getattr", "setattr", "delattr") and name in LIFTING_ATTRIBUTES:
                yield Use(f"uses {name}", *_text(node))
            if node.func.id in ("setattr", "delattr") and re.match(r"(torch|builtins)\b", resolve(node.args[0]) or ""):
                yield Use(f"changes {resolve(node.args[0])}", *_text(node))
        if isinstance(node, ast.Call) and (path := resolve(node.func)) in (*STATEMENTS, *GETTERS, *PATCHES, REDUCE):
            first = node.args[0] if node.args else None
            if path in PATCHES and not isinstance(first, ast.Name | ast.Attribute | ast.Call):
                yield Use("patches what a text names", *_text(node))  # what it names by itself is looked at anyway
            if path in STATEMENTS and not all(_is_code(a, tree) for a in _statements(node)):
                yield Use(f"runs a text by {path}", *_text(node))
            if path in GETTERS and not all(_is_name(a, tree) for a in _names_got(path, node)):
                yield Use(f"puts a name for {path.split('.')[1]} together", *_text(node))
            if path == REDUCE and node.args and resolve(node.args[0]) in GETTERS:
                yield Use("puts a path together by reduce(getattr, ...)", *_text(node))
        if isinstance(node, ast.Call) and any(map(_of_processes, node.args)):
            yield Use("reads /proc", *_text(node))
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store | ast.Del)
            and _called(node.value, "globals")
        ):
            yield Use("changes globals()", *_text(node))


def _statements(call: ast.Call) -> list[ast.expr]:
    """Return what a call of `timeit` runs: its first two arguments, or those of these names."""
    return [*call.args[:2], *(k.value for k in call.keywords if k.arg in ("stmt", "setup", None))]


def _is_code(node: ast.expr, tree: ast.Module) -> bool:
    """Return whether what is run is there to be read: a lambda, or a function of this cell."""
    functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    return isinstance(node, ast.Lambda) or (isinstance(node, ast.Name) and node.id in functions)


def _names_got(path: str, call: ast.Call) -> list[ast.expr]:
    """Return the names by which a call gets attributes."""
    if path == "builtins.getattr":
        return call.args[1:2]
    return call.args[:1] if path == "operator.methodcaller" else call.args


def _is_name(node: ast.expr, tree: ast.Module) -> bool:
    """Return whether a name is there to be read: a constant, or what a loop or a parameter gives, not an expression."""
    if isinstance(node, ast.Name):
        stored = {id(n): n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        loops = [n.target for n in ast.walk(tree) if isinstance(n, ast.For | ast.comprehension)]
        for target in loops:
            for part in ast.walk(target):
                stored.pop(id(part), None)
        given = [n for n in ast.walk(tree) if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)]
        for assigned in given:
            for name in assigned.targets:
                stored.pop(id(name), None)
        return node.id not in stored.values()
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    parts = node.value.split(".")
    return len(parts) == 1 or not any(part.startswith("_") or part in HELD for part in parts)


def _strange(tree: ast.Module) -> Iterator[Use]:
    """Yield what no exercise needs and nothing refuses, for a person to look at; and the words of a verdict."""
    scope = {name: path for node in ast.walk(tree) for name, path in _imports(node)}
    known: dict[int, str | None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and FORGED.search(node.value):
            yield Use("holds the words of a verdict", *_text(node))
        if isinstance(node, ast.Name | ast.Attribute):
            path = _dotted(node, lambda n: scope.get(n) or ("builtins.open" if n == "open" else None), known)
            if path and _within(path, STRANGE):
                yield Use(f"uses {path.removeprefix('builtins.')}", *_text(node))
        for _, path in _imports(node):
            if _within(path, STRANGE):
                yield Use(f"uses {path}", *_text(node))
        if isinstance(node, ast.FunctionDef) and node.name in PRETENDING:
            yield Use(f"defines {node.name}", node.lineno, f"def {node.name}(...)")
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "setattr")
            and len(node.args) > 1
            and not isinstance(node.args[1], ast.Constant | ast.Name)
        ):
            yield Use(f"calls {node.func.id} with a name that it puts together", *_text(node))


def _harmless(method: str, call: ast.Call | None) -> bool:
    """Return whether a call of the shell runs only code that is there to be read."""
    if call is None or method not in SHELL:
        return False
    said = [a.value if isinstance(a, ast.Constant) and isinstance(a.value, str) else None for a in call.args]
    if method in ("system", "getoutput"):
        return True
    if method == "run_cell_magic" or not said or said[0] is None:
        return False
    words = " ".join(s or "" for s in said).split()
    return words[:2] == ["load_ext", "autoreload"] or words[0] in HARMLESS


def _shell_use(node: ast.AST) -> Use:
    """Return a call of the shell, as its author wrote it where that was a magic."""
    line, text = _text(node)
    method = getattr(getattr(node, "func", None), "attr", "")
    args = node.args if isinstance(node, ast.Call) else []
    if method in ("run_line_magic", "run_cell_magic") and args and isinstance(args[0], ast.Constant):
        words = [str(a.value) for a in args if isinstance(a, ast.Constant)]
        return Use(f"uses %{words[0]}", line, f"%{' '.join(words)}"[:60])
    return Use("uses get_ipython", line, text)


def _of_processes(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/proc")


def _called(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _within(path: str, prefixes: Iterable[str]) -> bool:
    return any(path == prefix or path.startswith(prefix + ".") for prefix in prefixes)


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that an import binds, and the full names that they stand for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
            if not alias.asname and "." in alias.name:
                yield "", alias.name
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, _held(f"{'.' * node.level}{node.module or ''}.{alias.name}")


def _held(path: str) -> str:
    """Shorten a path to the module it ends in: ``torch.nn.init.math.exp`` is ``math.exp``."""
    if len(path) > MAX_PATH:
        raise _TooLong
    parts = path.split(".")
    place = max((i for i, part in enumerate(parts[:-1]) if part in HELD), default=0)
    if parts[-1] in HELD and len(parts) > 1 and parts[0] != "builtins":
        place = len(parts) - 1
    parts = parts[place:]
    return ".".join(["numpy" if parts[0] == "np" else parts[0], *parts[1:]])


def _dotted(node: ast.AST, lookup: Callable[[str], str | None], known: dict[int, str | None]) -> str | None:
    """Return the full name of what an expression stands for, as far as it is a path through modules.

    Args:
        node: the expression.
        lookup: what a name stands for.
        known: gets the answers, by the ids of the nodes.
    """
    if id(node) not in known:
        known[id(node)] = _found(node, lookup, known)
    return known[id(node)]


def _found(node: ast.AST, lookup: Callable[[str], str | None], known: dict[int, str | None]) -> str | None:
    if isinstance(node, ast.Name):
        return lookup(node.id)
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, lookup, known)
        return base and _held(f"{base}.{node.attr}")
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[-1], ast.Constant):
        function, last = _dotted(node.func, lookup, known), node.args[-1].value
        if function in ("builtins.__import__", "importlib.import_module") and isinstance(last, str):
            return _held(last)
        if function == "builtins.getattr" and len(node.args) == 2 and isinstance(last, str):
            base = _dotted(node.args[0], lookup, known)
            return base and _held(f"{base}.{last}")
    return None


# --- the code that an answer reaches ----------------------------------------------------------------------------------


class _Book:
    """The names of all cells, and the statements that bind them."""

    def __init__(self, cells: list[_Cell]) -> None:
        self.steps = _Steps()
        self._known_paths: _Answers[str, str | None] = _Answers(None, self.steps)
        self._relevant: dict[str, list[_Binding]] = {}
        self._defined: dict[int, set[str]] = {}  # by the id of the statement
        self.bindings: dict[str, list[_Binding]] = {}
        self.paths: dict[str, str] = {}
        self.stars: list[str] = []
        self.names = frozenset().union(*(cell.names for cell in cells))
        for cell in cells:
            for binding in cell.bindings:
                self.bindings.setdefault(binding.name, []).append(binding)
            self.paths |= {name: path for name, path in cell.paths if name not in ("", "*")}
            self.stars += [path.removesuffix(".*") for name, path in cell.paths if name == "*"]

    def relevant(self, name: str) -> list[_Binding]:
        """Return the bindings of a name, from the last on that certainly replaced the others."""
        if name not in self._relevant:
            found = self.bindings.get(name, [])
            whole = [i for i, b in enumerate(found) if b.certain and name in self._names(b.node)]
            self._relevant[name] = found[whole[-1] :] if whole else found
        return self._relevant[name]

    def _names(self, statement: ast.stmt) -> set[str]:
        if id(statement) not in self._defined:
            self._defined[id(statement)] = _defined(statement)
        return self._defined[id(statement)]

    def assigned(self, name: str) -> Iterator[ast.expr]:
        """Yield the values that the bindings of a name give it."""
        for binding in self.relevant(name):
            self.steps.take()
            if isinstance(binding.node, ast.Assign):
                yield binding.node.value

    def path(self, name: str) -> str | None:
        """Return what a global name stands for, if that is in a module."""
        return self._known_paths.get(name, lambda: self._path(name))

    def _path(self, name: str) -> str | None:
        if name in self.paths:
            return self.paths[name]
        if name in self.bindings:
            return next(filter(None, (_dotted(value, self.path, {}) for value in self.assigned(name))), None)
        for module in self.stars:
            if hasattr(sys.modules.get(module), name) and not hasattr(builtins, name):
                return _held(f"{module}.{name}")
        return f"builtins.{name}" if hasattr(builtins, name) else USUAL.get(name)


def _bindings(tree: ast.Module, certain: bool) -> Iterator[_Binding]:
    for statement in tree.body:
        certain = certain and _plain(statement)
        yield from (_Binding(name, statement, certain) for name in sorted(_bound(statement)))


def _shallow(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement that run with it: not those inside of functions."""
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            todo += ast.iter_child_nodes(node)


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _defined(statement: ast.stmt) -> set[str]:
    """Return the names that a statement gives a new value without conditions."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return {t.id for t in targets if isinstance(t, ast.Name)}
    return {name for name, _ in _imports(statement)}


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds, or whose values it changes; a function's global ones too."""
    found = set()
    for node in _shallow(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            found |= {name for n in ast.walk(node) if isinstance(n, ast.Global) for name in n.names}
        elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            found.add(_root(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr" and node.args:
            found.add(_root(node.args[0]))
        found |= {name for name, _ in _imports(node)}
    return found - {"", "*"}


def _plain(statement: ast.stmt) -> bool:
    """Return whether a statement cannot fail: an import, a definition made of definitions, a constant."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        known = ("torch", "matplotlib", "numpy", *sys.stdlib_module_names)
        return all(path.split(".")[0] in known for _, path in _imports(statement)) and not getattr(
            statement, "level", 0
        )
    if isinstance(statement, ast.Expr | ast.Assign):
        return isinstance(statement.value, ast.Constant) and all(
            isinstance(t, ast.Name) for t in getattr(statement, "targets", [])
        )
    if isinstance(statement, ast.FunctionDef):
        defaults = [*statement.args.defaults, *filter(None, statement.args.kw_defaults)]
        noted = [a.annotation for a in ast.walk(statement.args) if isinstance(a, ast.arg)] + [statement.returns]
        return (
            all(isinstance(d, ast.Constant) for d in defaults)
            and not any(noted)
            and not any(
                _root(d) not in ("staticmethod", "classmethod", "once_differentiable", "torch")
                for d in statement.decorator_list
            )
        )
    if isinstance(statement, ast.ClassDef):
        usual = all(_root(b) in ("torch", "Function", "object") for b in statement.bases)
        return (
            usual
            and not statement.decorator_list
            and not statement.keywords
            and all(isinstance(s, ast.Pass) or _plain(s) for s in statement.body)
        )
    return False


# --- what that code does ----------------------------------------------------------------------------------------------


class _Reader(ast.NodeVisitor):
    """Looks through one statement for what a task forbids."""

    def __init__(self, book: _Book, forbids: Forbids) -> None:
        self.book, self.forbids = book, forbids
        self.functions = frozenset(forbids.names.split())
        self.scopes: list[dict[str, list[ast.AST | str]]] = []  # per function: each name, and what it may stand for
        self._paths: list[_Answers[str, str | None]] = []  # per function: what names stand for, seen from there
        self._frees: list[_Answers[str, bool]] = []  # and whether they are free of the values of tensors
        self.names: set[str] = set()  # of the student's, that are used
        self.loaded: dict[str, ast.AST] = {}  # of these, those whose value is taken, and that `stray` has not seen
        self.uses: list[Use] = []
        self.taken: Use | None = None  # where tensors become Python numbers
        self.powers: Use | None = None
        self.backward = False

    def visit(self, node: ast.AST) -> None:
        """Look through a node: a step."""
        self.book.steps.take()
        super().visit(node)

    def finds(self) -> Use | None:
        """Return the first use; of Python numbers and powers of them, only both together."""
        if not self.uses and self.forbids.numbers and self.taken and self.powers:
            return replace(self.powers, what="raises Python numbers to a power")
        return self.uses[0] if self.uses else None

    def stray(self) -> Use | None:
        """Return a name that is used and that nothing defines: what it stands for was put there unseen."""
        for name, node in self.loaded.items():
            if name not in self.book.names and self.book.path(name) is None and name not in PRESENT:
                return Use(f"uses {name}, which no cell defines", *_text(node), IN_ANSWERS)
        self.loaded.clear()
        return None

    @contextmanager
    def _within(self, names: dict[str, list[ast.AST | str]]) -> Iterator[None]:
        """Be in the scope of a function, or of a comprehension."""
        self.scopes.append(names)
        self._paths.append(_Answers(None, self.book.steps))
        self._frees.append(_Answers(True, self.book.steps))  # `n = n + 1`: it hangs on its other values
        yield
        for per_scope in (self.scopes, self._paths, self._frees):
            per_scope.pop()

    def _values(self, name: str) -> Iterator[ast.AST | str]:
        """Yield what a name that is local to a function may stand for."""
        for value in next(scope[name] for scope in reversed(self.scopes) if name in scope):
            self.book.steps.take()
            yield value

    def _is_local(self, name: str) -> bool:
        return any(name in scope for scope in self.scopes)

    def _lookup(self, name: str) -> str | None:
        if not self._is_local(name):
            return self.book.path(name)
        return self._paths[-1].get(name, lambda: self._local_path(name))

    def _local_path(self, name: str) -> str | None:
        for value in self._values(name):
            if isinstance(value, str):
                return value
            if isinstance(value, ast.Name | ast.Attribute) and (path := self.resolve(value)):
                return path
        return None

    def resolve(self, node: ast.AST) -> str | None:
        """Return the full name of what stands in a module."""
        known: dict[int, str | None] = {}
        path = _dotted(node, self._lookup, known)
        self.book.steps.take(len(known))
        return path

    def _own(self, node: ast.AST) -> bool:
        """Return whether an attribute is of the student's own making: of a class of theirs, of ctx."""
        root = _root(node)
        return root in OWN or (root in self.book.bindings and not self._is_local(root) and not self.book.path(root))

    def _free(self, node: ast.AST) -> bool:
        """Return whether an expression is free of the values of tensors: constants, shapes, limits of dtypes."""
        free = self._free
        self.book.steps.take()
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Name) and self._is_local(node.id):
            return self._frees[-1].get(node.id, lambda: self._free_name(node.id))
        if isinstance(node, ast.Name):
            if self.resolve(node):
                return True
            values = [isinstance(value, ast.Constant) for value in self.book.assigned(node.id)]
            return bool(values) and all(values)
        if isinstance(node, ast.Attribute):
            return node.attr in SHAPES or self.resolve(node) is not None or free(node.value)
        if isinstance(node, ast.Call):
            path = self.resolve(node.func)
            if path in ("torch.finfo", "torch.iinfo", "builtins.len"):
                return True
            if isinstance(node.func, ast.Attribute) and path is None:
                return node.func.attr in SIZES
            return path is not None and all(map(free, [*node.args, *(k.value for k in node.keywords)]))
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare | ast.IfExp | ast.Tuple | ast.List):
            return all(free(c) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr))
        if isinstance(node, ast.Subscript | ast.Starred):
            return free(node.value)
        return False

    def _free_name(self, name: str) -> bool:
        values = list(self._values(name))
        return bool(values) and all(isinstance(v, str) or self._free(v) for v in values)

    def _add(self, what: str, node: ast.AST, why: str = "") -> None:
        if not self.uses:  # only the first is told, and its text may be long
            self.uses.append(Use(what, *_text(node), why))

    def judge(self, path: str, node: ast.AST, call: ast.Call | None = None) -> None:
        """Judge a full name, called or not."""
        parts = path.split(".")
        shown, top = call or node, parts[0]
        if (top == "torch" and self.functions.intersection(parts[1:])) or _within(path, self.forbids.paths):
            self._add(f"uses {path}", shown)
        elif _within(path, ELSEWHERE):
            self._add(f"uses {path.removeprefix('builtins.')}", shown, IN_ANSWERS)
        elif self.backward and (
            _within(path, ("torch.func", "torch.autograd.functional", "torch.autograd.Variable"))
            or path in ("torch.autograd.grad", "torch.autograd.backward")
        ):
            self._add(f"calls {path} in backward", shown)
        elif self._foreign(top, path) and not (
            parts[-1] in CONSTANTS or re.fullmatch(r"u?int\d+|float\d+", parts[-1])
            if call is None
            else self._free_call(call) and top != "matplotlib"  # of which a part made of constants computes too
        ):
            self._add(f"uses {top}", shown)

    def _foreign(self, top: str, path: str) -> bool:
        if self.forbids.numbers and top in ("math", "cmath", "decimal", "statistics", "fractions"):
            return True
        return self.forbids.foreign and top not in ("torch", "", *sys.stdlib_module_names)

    def _free_call(self, call: ast.Call) -> bool:
        return all(map(self._free, [*call.args, *(k.value for k in call.keywords)]))

    def visit_Name(self, node: ast.Name) -> None:
        if not self._is_local(node.id):
            self.names.add(node.id)
            if isinstance(node.ctx, ast.Load):
                self.loaded.setdefault(node.id, node)
        if isinstance(node.ctx, ast.Load) and (path := self.resolve(node)):
            self.judge(path, node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if path := self.resolve(node):
            self.judge(path, node)
            self._use(node)
            return
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):  # of `a.b.c` that is in no module, `a.b` is in none either
            inner = inner.value
        self.visit(inner)

    def _use(self, node: ast.AST) -> None:
        """Note the student's own name that a path begins with: ``f = torch.exp`` and then ``f(x)``."""
        if (root := _root(node)) and not self._is_local(root):
            self.names.add(root)
            self.loaded.setdefault(root, node)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Do nothing: an import is judged where its name is used."""

    visit_ImportFrom = visit_Import

    def visit_Call(self, node: ast.Call) -> None:
        path, inside = self.resolve(node.func), [*node.args, *(k.value for k in node.keywords)]
        if path == "builtins.print":
            return
        if whole := self.resolve(node):  # getattr(torch, "sigmoid")
            self.judge(whole, node)
        if path:
            self._use(node.func)
            self.judge(path, node.func, node)
            if path in ("builtins.float", "builtins.complex", "builtins.int") and not self._free_call(node):
                self.taken = self.taken or Use("", *_text(node))
            if path == "builtins.pow" and len(node.args) > 1 and not self._free(node.args[1]):
                self.powers = self.powers or Use("", *_text(node))
        elif isinstance(node.func, ast.Attribute):
            self._method(node, node.func)
            self.visit(node.func.value)
        else:
            self.visit(node.func)
        for part in inside:
            self.visit(part)

    def _method(self, node: ast.Call, method: ast.Attribute) -> None:
        if self._own(method.value):
            return
        if method.attr in self.functions:
            self._add(f"uses .{method.attr}()", node)
        elif method.attr == "backward" and self.backward and len(node.args) < 2 and not _called(method.value, "super"):
            self._add("calls .backward() in backward", node)
        elif method.attr in ("numpy", "__array__") and self.forbids.foreign:
            self._add("hands its numbers to numpy", node)
        elif method.attr == "tolist" and self.forbids.numbers and not self._free(method.value):
            self._add("computes with Python numbers", node)
        elif method.attr in ("item", "__float__"):
            self.taken = self.taken or Use("", *_text(node))

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Pow) and not self._free(node.right):
            self.powers = self.powers or Use("", *_text(node))
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        for part in [*getattr(node, "decorator_list", []), *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(part)
        was, name = self.backward, getattr(node, "name", "")
        self.backward = was or (self.forbids.backward and name in ("backward", "vjp"))
        with self._within(_local(node)):
            for part in node.body if isinstance(node.body, list) else [node.body]:
                self.visit(part)
        self.backward = was

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        names: dict[str, list[ast.AST | str]] = {
            n.id: [] for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)
        }
        with self._within(names):
            self.generic_visit(node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _local(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> dict[str, list[ast.AST | str]]:
    """Return a function's local names: parameters (of which nothing is known), imports, and what else is assigned."""
    args = [a for a in ast.walk(function.args) if isinstance(a, ast.arg)]
    found: dict[str, list[ast.AST | str]] = {a.arg: [] for a in args}
    unknown, shared = set(found), set()
    body = function.body if isinstance(function.body, list) else []
    for node in (n for statement in body for n in _shallow(statement)):
        if isinstance(node, ast.Global | ast.Nonlocal):
            shared |= set(node.names)
        for name, path in _imports(node):
            if name:
                found.setdefault(name, []).append(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.setdefault(node.name, []).append(node)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                        found.setdefault(part.id, []).append(node.value)
        elif isinstance(node, ast.NamedExpr | ast.AugAssign) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            unknown.add(node.name)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.With | ast.AsyncWith):
            targets = [getattr(node, "target", None), *(i.optional_vars for i in getattr(node, "items", []))]
            unknown |= {n.id for t in filter(None, targets) for n in ast.walk(t) if isinstance(n, ast.Name)}
    for name in unknown:  # a loop's, a with's, a parameter's
        found[name] = [v for v in found.get(name, []) if isinstance(v, str)]
    return {name: values for name, values in found.items() if name not in shared}
