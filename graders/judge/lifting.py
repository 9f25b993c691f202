"""What could lift a refusal, wherever in a submission it stands: machinery of Python, of torch, of the notebook."""

import ast
import builtins
import re
from collections.abc import Collection, Iterator

from graders.judge.paths import HELD, USUAL, Use, called, dotted, imports, listed, quoted, within

LIFTS = listed("""
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
STATEMENTS = listed("timeit.timeit timeit.repeat timeit.Timer timeit.main")  # run the text that they are given
GETTERS = listed("builtins.getattr operator.attrgetter operator.methodcaller")  # by a name that may be put together
LIFTING_ATTRIBUTES = listed("""
    __globals__ __code__ __closure__ __builtins__ __subclasses__ __loader__ f_globals f_locals f_back f_builtins
    tb_frame gi_frame cr_frame cell_contents _execution_engine user_ns user_global_ns ast_transformers run_cell _ip
    run_code input_transformers_post input_transformers_cleanup
""")
# what begins with an underscore is no business of a course's, trees and lists of tensors apart
PRIVATE = re.compile(r"torch(\.\w+)*\._(?!_|pytree|foreach|assert)\w+")
# what nobody refuses and no exercise needs: the machine, other processes, files, and what outlives a cell
STRANGE = listed("""
    socket _socket subprocess _posixsubprocess multiprocessing signal resource atexit sqlite3 pty fcntl termios select
    shutil tempfile glob pathlib threading _thread faulthandler weakref.finalize concurrent.futures builtins.open
    io.open io.FileIO http urllib ftplib requests httpx torch.overrides torch.multiprocessing
    os.fork os.forkpty os.kill os.killpg os._exit os.abort os.system os.popen os.posix_spawn os.posix_spawnp os.execv
    os.execve os.execl os.execlp os.execvp os.spawnl os.spawnv os.write os.writev os.close os.closerange os.dup os.dup2
    os.open os.fdopen os.pipe os.pipe2 os.memfd_create os.read os.sendfile os.setuid os.setgid os.setreuid os.setresuid
    os.setsid os.setgroups os.getppid os.unlink os.remove os.rename os.replace os.symlink os.link os.mkfifo os.mkdir
    os.makedirs os.walk os.scandir os.listdir os.chmod os.chown os.utime os.ptrace os.register_at_fork
""")
PRETENDING = listed("""
    __torch_function__ __torch_dispatch__ __getattribute__ __del__ __instancecheck__ __subclasscheck__
""")
FORGED = re.compile(r"\d of \d+ points?\b|vnd\.graders|Right in (all )?\d+ cases")
REDUCE = "functools.reduce"
PATCHES = listed("unittest.mock.patch unittest.mock.patch.dict unittest.mock.patch.multiple unittest.mock.patch.object")
# line magics that neither run code nor give a name another value
HARMLESS = listed("""
    matplotlib config precision who who_ls whos pwd ls cd cat less more man mkdir pip conda uv xmode colors lsmagic
    magic quickref pinfo pinfo2 psource pdoc pdef pfile psearch history hist env set_env autoreload autosave
    doctest_mode clear reset reset_selective page notebook tb automagic pylab gui
""")
SHELL = listed("run_line_magic magic run_cell_magic system getoutput")


def lifts(tree: ast.Module) -> Iterator[Use]:
    """Yield the machinery of Python and torch that an exercise has no use for, wherever it stands."""
    scope = dict(USUAL) | {name: path for node in ast.walk(tree) for name, path in imports(node)}
    harmless = {id(c) for n in ast.walk(tree) if isinstance(n, ast.Compare) for c in n.comparators}  # in sys.modules

    known: dict[int, str | None] = {}

    def resolve(node: ast.AST) -> str | None:
        return dotted(node, lambda n: scope.get(n) or (f"builtins.{n}" if hasattr(builtins, n) else None), known)

    bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    composed = _composed(tree)
    attributes = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    shells = {id(n.value.func): n for n in attributes if called(n.value, "get_ipython")}
    calls = {id(n.func): n for n in ast.walk(tree) if isinstance(n, ast.Call)}
    for node in ast.walk(tree):
        if id(node) in harmless:
            continue
        if isinstance(node, ast.Name) and node.id == "get_ipython":
            method = shells.get(id(node))
            if method is None or not _harmless(method.attr, calls.get(id(method))):
                yield _shell_use(calls.get(id(method)) or node)
            continue
        paths = [path for name, path in imports(node) if name != "get_ipython"]  # of which each use is looked at
        if isinstance(node, ast.Name | ast.Attribute | ast.Call) and (path := resolve(node)):
            paths.append("" if path.startswith("builtins.") and path.split(".")[1] in bound else path)
        for path in paths:
            if within(path, LIFTS) or PRIVATE.match(path):
                yield Use(f"uses {path.removeprefix('builtins.')}", *quoted(node))
            stored = isinstance(node, ast.Attribute) and isinstance(
                node.ctx, ast.Store
            )  # `F = ...` is a name of theirs
            if stored and re.match(r"(torch|builtins)\.(?!backends)", path):
                yield Use(f"changes {path.removeprefix('builtins.')}", *quoted(node))
        name = getattr(node, "attr", "") or getattr(node, "id", "")
        if name in LIFTING_ATTRIBUTES and isinstance(node, ast.Name | ast.Attribute):
            yield Use(f"uses {name}", *quoted(node))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
            if node.func.id in ("getattr", "setattr", "delattr") and name in LIFTING_ATTRIBUTES:
                yield Use(f"uses {name}", *quoted(node))
            if node.func.id in ("setattr", "delattr") and re.match(r"(torch|builtins)\b", resolve(node.args[0]) or ""):
                yield Use(f"changes {resolve(node.args[0])}", *quoted(node))
        if isinstance(node, ast.Call) and (path := resolve(node.func)) in (*STATEMENTS, *GETTERS, *PATCHES, REDUCE):
            first = node.args[0] if node.args else None
            if path in PATCHES and not isinstance(first, ast.Name | ast.Attribute | ast.Call):
                yield Use("patches what a text names", *quoted(node))  # what it names by itself is looked at anyway
            if path in STATEMENTS and not all(_is_code(a, functions) for a in _statements(node)):
                yield Use(f"runs a text by {path}", *quoted(node))
            if path in GETTERS and not all(_is_name(a, composed) for a in _names_got(path, node)):
                yield Use(f"puts a name for {path.split('.')[1]} together", *quoted(node))
            if path == REDUCE and node.args and resolve(node.args[0]) in GETTERS:
                yield Use("puts a path together by reduce(getattr, ...)", *quoted(node))
        if isinstance(node, ast.Call) and any(map(_of_processes, node.args)):
            yield Use("reads /proc", *quoted(node))
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store | ast.Del)
            and called(node.value, "globals")
        ):
            yield Use("changes globals()", *quoted(node))


def _statements(call: ast.Call) -> list[ast.expr]:
    """Return what a call of `timeit` runs: its first two arguments, or those of these names."""
    return [*call.args[:2], *(k.value for k in call.keywords if k.arg in ("stmt", "setup", None))]


def _is_code(node: ast.expr, functions: Collection[str]) -> bool:
    """Return whether what is run is there to be read: a lambda, or a function of this cell."""
    return isinstance(node, ast.Lambda) or (isinstance(node, ast.Name) and node.id in functions)


def _names_got(path: str, call: ast.Call) -> list[ast.expr]:
    """Return the names by which a call gets attributes."""
    if path == "builtins.getattr":
        return call.args[1:2]
    return call.args[:1] if path == "operator.methodcaller" else call.args


def _composed(tree: ast.Module) -> set[str]:
    """Return the names to which a cell gives the value of an expression: not those of loops, nor of constants only."""
    stored = {id(n): n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    loops = [n.target for n in ast.walk(tree) if isinstance(n, ast.For | ast.comprehension)]
    given = [n for n in ast.walk(tree) if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)]
    for target in [*loops, *(t for assigned in given for t in assigned.targets)]:
        for part in ast.walk(target):
            stored.pop(id(part), None)
    return set(stored.values())


def _is_name(node: ast.expr, composed: Collection[str]) -> bool:
    """Return whether a name is there to be read: a constant, or what a loop or a parameter gives, not an expression."""
    if isinstance(node, ast.Name):
        return node.id not in composed
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    parts = node.value.split(".")
    return len(parts) == 1 or not any(part.startswith("_") or part in HELD for part in parts)


def strange(tree: ast.Module) -> Iterator[Use]:
    """Yield what no exercise needs and nothing refuses, for a person to look at; and the words of a verdict."""
    scope = {name: path for node in ast.walk(tree) for name, path in imports(node)}
    known: dict[int, str | None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and FORGED.search(node.value):
            yield Use("holds the words of a verdict", *quoted(node))
        if isinstance(node, ast.Name | ast.Attribute):
            path = dotted(node, lambda n: scope.get(n) or ("builtins.open" if n == "open" else None), known)
            if path and within(path, STRANGE):
                yield Use(f"uses {path.removeprefix('builtins.')}", *quoted(node))
        for _, path in imports(node):
            if within(path, STRANGE):
                yield Use(f"uses {path}", *quoted(node))
        if isinstance(node, ast.FunctionDef) and node.name in PRETENDING:
            yield Use(f"defines {node.name}", node.lineno, f"def {node.name}(...)")
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "setattr")
            and len(node.args) > 1
            and not isinstance(node.args[1], ast.Constant | ast.Name)
        ):
            yield Use(f"calls {node.func.id} with a name that it puts together", *quoted(node))


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
    line, text = quoted(node)
    method = getattr(getattr(node, "func", None), "attr", "")
    args = node.args if isinstance(node, ast.Call) else []
    if method in ("run_line_magic", "run_cell_magic") and args and isinstance(args[0], ast.Constant):
        words = [str(a.value) for a in args if isinstance(a, ast.Constant)]
        return Use(f"uses %{words[0]}", line, f"%{' '.join(words)}"[:60])
    return Use("uses get_ipython", line, text)


def _of_processes(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/proc")
