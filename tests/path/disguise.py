"""What somebody does to another's answer so that it looks like their own."""

import ast
import random
from itertools import count

KEPT = {"forward", "backward", "setup_context", "torch", "F", "nn", "np", "math"}


class _Disguise(ast.NodeTransformer):
    """Gives every name that an answer binds another one, turns sums and products round, drops annotations."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg, node.annotation = self.names.get(node.arg, node.arg), None
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Mult):
            node.left, node.right = node.right, node.left
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.name, node.returns = self.names.get(node.name, node.name), None
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1:
            del node.body[0]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Turn the methods round; attributes may lean on each other and stay where they are."""
        self.generic_visit(node)
        node.name = self.names.get(node.name, node.name)
        methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
        others = [one for one in node.body if not isinstance(one, ast.FunctionDef)]
        node.body = [*others, *reversed(methods)]
        return node


def bound(tree: ast.Module, task: str) -> list[str]:
    """The names that an answer binds and that may be called anything."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.append(node.id)
        elif isinstance(node, ast.arg):
            found.append(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append(node.name)
    given = {keyword.arg for keyword in ast.walk(tree) if isinstance(keyword, ast.keyword)}
    return [name for name in dict.fromkeys(found) if name not in {task, *KEPT, *given}]


def disguised(text: str, task: str, seed: int = 0) -> str:
    """An answer under other names, its methods in another order, with a comment of its own."""
    tree, chance = ast.parse(text), random.Random(seed)
    letters = count(chance.randrange(100))
    names = {name: f"my_{next(letters)}" for name in bound(tree, task)}
    return f"# I did this on Sunday\n{ast.unparse(_Disguise(names).visit(tree))}\n"
