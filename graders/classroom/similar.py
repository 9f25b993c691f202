"""Answers that have more in common than their class has: pairs for a person to read side by side, not accusations.

How alike two answers are is said in bits: by how much one becomes shorter to write down when the other lies on the
table, beside what the class and the right solutions write anyhow (the idea of minimum description length; Grünwald,
The Minimum Description Length Principle, 2007, chapter 1). What everybody writes costs next to nothing, so that twins
of a three-line task share nothing worth a bit, and a long odd expression that two people have and nobody else is worth
dozens. A piece that is taken over costs what it takes to point at it, which swallows chance. What a node costs by
itself is how seldom it stands in its place, as in a probabilistic grammar that the class and the course have written.

Answers are compared as syntax trees. Names that their authors chose, comments, docstrings, annotations, and the order
of the operands of a sum or product make no difference; statements and functions that change places are pieces still.

Nothing here reads a file: `read` runs in the process that reads what students wrote.
"""

import ast
import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf, log2

MARGIN = 24.0  # bits above those that chance gives the closest of all pairs, before a pair is shown
GROUP, TO_A_GROUP = 6, 15  # who copies does so in a group of this size at most, and of two and one for so many students
SMOOTH = 0.5  # what each count is raised by, so that nothing is impossible
MOST_NODES = 5000  # of an answer; the longest right one has a tenth of them
FIXED = {"forward", "backward", "setup_context", "jvp", "vmap"}  # names of methods that nobody chose
COMMUTES = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)
LEFT_OUT = {"ctx", "kind", "type_comment", "annotation", "returns", "type_params"}


@dataclass(frozen=True)
class Node:
    """A node of an answer's syntax tree.

    Args:
        label: what it is, without the names that its author chose.
        slot: what it is there for: the kind of node above it, and which part of that.
        end: the index behind the last node below it; nodes are numbered from above, as they are read.
        names: those that its author chose, by number.
        piece: equal where everything below is equal but for the choice of names.
        lines: the first and the last line of it, from 1.
    """

    label: str
    slot: str
    end: int
    names: tuple[int, ...]
    piece: str
    lines: tuple[int, int]


@dataclass(frozen=True)
class Answer:
    """An answer to a task, read.

    Args:
        text: what was written.
        nodes: of its syntax tree, the whole cell first.
    """

    text: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Shared:
    """What two answers to a task have in common.

    Args:
        task: the task.
        bits: what that is worth.
        lines: of either answer, those in which something is shared.
        verbatim: whether they are the same text, spaces at the ends of lines aside.
    """

    task: str
    bits: float
    lines: tuple[frozenset[int], frozenset[int]]
    verbatim: bool


@dataclass(frozen=True)
class Pair:
    """Two students whose answers are more alike than chance explains, the most telling task first."""

    students: tuple[str, str]
    shared: tuple[Shared, ...]

    @property
    def bits(self) -> float:
        """What all that they share is worth."""
        return sum(one.bits for one in self.shared)


# --- reading ----------------------------------------------------------------------------------------------------------


def read(texts: Mapping[str, str], most: int = MOST_NODES) -> dict[str, Answer]:
    """Return the answers, by task, that are Python and not endless.

    Args:
        texts: the answers, by task.
        most: nodes of a syntax tree.
    """
    found = {}
    for task, text in texts.items():
        try:
            nodes = _Reading(ast.parse(text), task, most).nodes
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if nodes:
            found[task] = Answer(text, tuple(nodes))
    return found


@dataclass(frozen=True)
class _Tree:
    label: str
    slot: str
    names: tuple[str, ...]
    below: "tuple[_Tree, ...]"
    lines: tuple[int, int]

    def shape(self) -> str:
        """Return all of it as text, without the names that were chosen."""
        return f"{self.label}({','.join(one.shape() for one in self.below)})"

    def every_name(self) -> list[str]:
        """Return the names that were chosen, as they come."""
        return [*self.names, *(name for one in self.below for name in one.every_name())]


class _Reading:
    """Reads one answer."""

    def __init__(self, tree: ast.Module, task: str, most: int) -> None:
        self.left = most
        self.own, self.attributes = _chosen(tree, task)
        places = sorted((n.lineno, n.col_offset, n.id) for n in ast.walk(tree) if isinstance(n, ast.Name))
        self.order = {name: i for i, (_, _, name) in reversed([*enumerate(places)])}  # by where a name comes first
        self.nodes: list[Node] = []
        self.names: dict[str, int] = {}
        self._flatten(self._tree(tree, ""))

    def _tree(self, node: ast.AST, slot: str) -> _Tree:
        self.left -= 1
        if self.left < 0:
            raise ValueError("too long")
        kind = type(node).__name__
        parts, names, below = [kind], [], []
        for field in node._fields:
            value = getattr(node, field, None)
            if field in LEFT_OUT or value is None:
                continue
            for one in _without_words(value) if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST) and not one._fields:  # an operator
                    parts.append(type(one).__name__)
                elif isinstance(one, ast.AST):
                    below.append(self._tree(one, f"{kind}.{field}"))
                elif isinstance(one, str) and self._is_chosen(node, one):
                    names.append(one)
                else:
                    parts.append(_plain(one))
        if isinstance(node, ast.BinOp) and isinstance(node.op, COMMUTES):
            below.sort(key=lambda one: (one.shape(), [self.order.get(name, -1) for name in one.every_name()]))
        line = getattr(node, "lineno", 0)
        label = f"{' '.join(parts)} /{len(below)}"
        return _Tree(label, slot, tuple(names), tuple(below), (line, getattr(node, "end_lineno", None) or line))

    def _is_chosen(self, node: ast.AST, name: str) -> bool:
        return name in (self.attributes if isinstance(node, ast.Attribute) else self.own) and not isinstance(
            node, ast.Constant | ast.keyword
        )

    def _flatten(self, tree: _Tree) -> list[str]:
        """Append a node and all below; return its words, and each chosen name as one that begins with a blank."""
        place = len(self.nodes)
        numbers = tuple(self.names.setdefault(name, len(self.names)) for name in tree.names)
        self.nodes.append(Node(tree.label, tree.slot, 0, numbers, "", tree.lines))
        words = [tree.label, *(f" {number}" for number in numbers)]
        for one in tree.below:
            words += self._flatten(one)
        seen: dict[str, str] = {}
        told = [seen.setdefault(word, f" {len(seen)}") if word.startswith(" ") else word for word in words]
        piece = hashlib.blake2b("\n".join(told).encode(), digest_size=8).hexdigest()
        self.nodes[place] = Node(tree.label, tree.slot, len(self.nodes), numbers, piece, tree.lines)
        return words


def _chosen(tree: ast.Module, task: str) -> tuple[set[str], set[str]]:
    """Return the names, and the names of attributes, that an answer's author chose: those that it binds."""
    own, attributes = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            attributes.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.alias):
            own.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            own.add(node.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            attributes |= {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
    kept = {task, *FIXED, "torch", "F", "nn", "np"}
    return own - kept, attributes - kept


def _without_words(values: list[object]) -> list[object]:
    """Return a list of nodes without docstrings, strings that stand alone, and ``pass``."""
    return [
        one
        for one in values
        if not (
            isinstance(one, ast.Pass)
            or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str))
        )
    ]


def _plain(value: object) -> str:
    """Return a constant, or a name that nobody chose, as a word; 2 and 2.0 are one number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return repr(float(value))
        except OverflowError:
            return "a large number"
    return ascii(value)


# --- comparing --------------------------------------------------------------------------------------------------------


class Corpus:
    """What a class writes, and what its pieces are worth.

    Args:
        answers: by student and task.
        course: what the course itself has: the exercise, the chapter, solutions. What stands there is nobody's.
    """

    def __init__(self, answers: Mapping[str, Mapping[str, Answer]], course: Sequence[Answer] = ()) -> None:
        self.answers = answers
        self.course = {node.piece for answer in course for node in answer.nodes}
        self.having: dict[str, Counter[str]] = defaultdict(Counter)  # by task: how many have a piece
        self.writing: dict[str, int] = Counter()  # by task: how many there are
        self.labels: dict[str, Counter[str]] = defaultdict(Counter)  # by slot
        self.pieces: dict[tuple[str, str], dict[str, int]] = {}  # by student and task: where a piece is
        for answer in [*course, *(answer for tasks in answers.values() for answer in tasks.values())]:
            for node in answer.nodes:
                self.labels[node.slot][node.label] += 1
        self.totals = {slot: sum(found.values()) for slot, found in self.labels.items()}
        for student, tasks in answers.items():
            for task, answer in tasks.items():
                where: dict[str, int] = {}
                for i, node in enumerate(answer.nodes):
                    where.setdefault(node.piece, i)
                self.pieces[student, task] = where
                self.having[task].update(where.keys())
                self.writing[task] += 1

    @property
    def enough(self) -> float:
        """The bits from which on a pair is shown: `MARGIN` above the closest of as many pairs that chance makes."""
        count = len(self.answers)
        return log2(max(count * (count - 1) / 2, 1)) + MARGIN

    def pairs(self) -> list[Pair]:
        """Return the pairs that have more in common than chance explains, those with most first."""
        found = []
        for students in sorted(self._candidates()):
            pair = self.pair(students)
            if pair.bits >= self.enough:
                found.append(pair)
        return sorted(found, key=lambda pair: (-pair.bits, pair.students))

    def pair(self, students: tuple[str, str]) -> Pair:
        """Return what two students share in all tasks; a habit of both counts where it is met first."""
        tasks = self.answers[students[0]].keys() & self.answers[students[1]].keys()
        paid: tuple[set[str], set[str]] = set(), set()
        shared = [one for task in sorted(tasks) if (one := self._shared(task, students, paid)).bits > 0]
        return Pair(students, tuple(sorted(shared, key=lambda one: (-one.bits, one.task))))

    def _candidates(self) -> set[tuple[str, str]]:
        """Return the pairs that share a piece which is worth more than pointing at it costs; the others share none."""
        by_piece: dict[tuple[str, str], list[str]] = defaultdict(list)
        for (student, task), where in self.pieces.items():
            for piece in where:
                by_piece[task, piece].append(student)
        found = set()
        for (task, piece), students in by_piece.items():
            fewest = min(len(self.pieces[student, task]) for student in students)
            if (
                len(students) > 1
                and piece not in self.course
                and self._others(task, piece) * fewest < self.writing[task]
            ):
                found |= set(combinations(sorted(students), 2))
        return found

    def _others(self, task: str, piece: str) -> int:
        """Return how many have a piece besides those who may all have it from each other."""
        group = min(GROUP, 2 + len(self.answers) // TO_A_GROUP)
        return max(self.having[task][piece] - group, 0)

    def _shared(self, task: str, students: tuple[str, str], paid: tuple[set[str], set[str]]) -> Shared:
        """Return what two students' answers to a task share; the lower of both ways to count it."""
        ways = [self._taken(task, students, paid[0]), self._taken(task, students[::-1], paid[1])]
        first, second = (self.answers[student][task] for student in students)
        lines = (_lines(first, ways[1][1]), _lines(second, ways[0][1]))
        verbatim = _stripped(first.text) == _stripped(second.text)
        return Shared(task, min(bits for bits, _ in ways), lines, verbatim)

    def _taken(self, task: str, students: tuple[str, str], paid: set[str]) -> tuple[float, list[int]]:
        """Return by how many bits the second's answer is shorter beside the first's, and the nodes it takes over.

        Args:
            task: the task.
            students: the two.
            paid: the pieces that were taken over before, which cost nothing any more; gets those that are now.
        """
        source, nodes = self.pieces[students[0], task], self.answers[students[1]][task].nodes
        pointing = log2(len(source))
        saved, taken = 0.0, []
        i = 0
        while i < len(nodes):
            node = nodes[i]
            if node.piece not in source:
                i += 1
                continue
            gain = self._price(task, nodes, i, set(), paid) - pointing
            if gain > 0:
                saved += gain
                paid |= {one.piece for one in nodes[i : node.end]}
            if gain > 0 or node.piece in paid:
                taken.append(i)
            i = node.end
        return saved, taken

    def _price(self, task: str, nodes: Sequence[Node], i: int, seen: set[int], paid: set[str]) -> float:
        """Return the bits of a piece that two have: as one that others have too, or made of its parts; what is less."""
        node = nodes[i]
        if node.piece in self.course or node.piece in paid:
            return 0.0
        others = self._others(task, node.piece)
        known = -log2(others / max(self.writing[task] - 2, others)) if others else inf
        labels, total = self.labels[node.slot], self.totals[node.slot]
        often = max(labels[node.label] - 2, 0) + SMOOTH  # by others than these two
        made = log2((max(total - 2, 0) + SMOOTH * (len(labels) + 1)) / often)
        for name in node.names:
            made += log2(len(seen)) if name in seen else 0.0  # a new name is free: it may be any
            seen.add(name)
        below = i + 1
        while below < node.end and made < known:
            made += self._price(task, nodes, below, seen, paid)
            below = nodes[below].end
        return min(known, made)


def _lines(answer: Answer, taken: Sequence[int]) -> frozenset[int]:
    """Return the lines on which a node begins or ends that one of these covers."""
    covered = (node for i in taken for node in answer.nodes[i : answer.nodes[i].end])
    return frozenset(line for node in covered for line in node.lines if line)


def _stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
