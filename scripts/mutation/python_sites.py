"""Changes of Python sources: one text contains all changes of a file, and a number selects a change.

Owns: the operators, and the places where they do not apply. Must not know: the draw, tests. A changed expression
becomes `changed if MUTANT == number else original`; a removed statement becomes `if MUTANT != number: statement`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from typing import Any

from mutation.sites import Site

CHOSEN = "_brickd_mutant"

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    """Return the changes of an expression."""
    match node:
        case ast.Compare(ops=ops):
            for place, one in enumerate(ops):
                if type(one) in _COMPARED:
                    yield ast.Compare(
                        node.left, [*ops[:place], _COMPARED[type(one)](), *ops[place + 1 :]], node.comparators
                    )
        case ast.BoolOp(op=op):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp(op=op) if type(op) in _COMPUTED and not isinstance(node.left, ast.Constant | ast.JoinedStr):
            yield ast.BinOp(node.left, _COMPUTED[type(op)](), node.right)
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
        case ast.IfExp():
            yield ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)


def _is_swapped_whole(test: ast.expr) -> bool:
    """Return whether the only change of a condition is its negation."""
    match test:
        case ast.Compare(ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]):
            return True
        case ast.UnaryOp(op=ast.Not()):
            return True
    return False


class Changed(ast.NodeTransformer):
    """A walk over a source that finds its sites and applies the selected changes.

    Attributes:
        sites: the sites found.
    """

    def __init__(self, file: str, chosen: Mapping[int, int]) -> None:
        self.sites: list[Site] = []
        self._file = file
        self._chosen = chosen

    def _number(self, node: ast.AST, change: str) -> int | None:
        site = Site(self._file, len(self.sites), getattr(node, "lineno", 0), change)
        self.sites.append(site)
        return self._chosen.get(site.place)

    def visit(self, node: ast.AST) -> Any:
        """Change the children of a node, then the node itself if it is selected."""
        # not every expression is allowed inside an f-string or a pattern
        if isinstance(node, ast.JoinedStr | ast.pattern):
            return node
        # the argument `strict` of zip: correct code never violates it
        if isinstance(node, ast.keyword) and node.arg == "strict":
            return node
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant):
            node.body = self._statements(node.body)
            return node
        wanted: list[tuple[int, ast.expr]] = []
        if isinstance(node, ast.expr):
            before = ast.unparse(node)
            for changed in _expressions(node):
                number = self._number(node, f"{before} -> {ast.unparse(changed)}")
                if number is not None:
                    wanted.append((number, copy.deepcopy(changed)))
        removed = self._removed(node)
        if isinstance(node, ast.If):
            if not _is_swapped_whole(node.test) and (
                number := self._number(node, f"if {ast.unparse(node.test)} -> if not")
            ):
                wanted.append((number, ast.UnaryOp(ast.Not(), copy.deepcopy(node.test))))
            node = super().visit(node)
            assert isinstance(node, ast.If)
            node.test = _choices(node.test, wanted)
            return node
        node = super().visit(node)
        if removed is not None:
            assert isinstance(node, ast.stmt)
            return ast.If(ast.Compare(_name(), [ast.NotEq()], [ast.Constant(removed)]), [node], [])
        return _choices(node, wanted) if wanted and isinstance(node, ast.expr) else node

    def _removed(self, node: ast.AST) -> int | None:
        match node:
            case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
                return self._number(node, f"remove {ast.unparse(node)}")
        return None

    def _statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [self.visit(each) for each in body]

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.args.defaults = [self.visit(each) for each in node.args.defaults]
        node.args.kw_defaults = [None if each is None else self.visit(each) for each in node.args.kw_defaults]
        node.body = self._statements(node.body)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Omit annotations and decorators."""
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """Omit annotations and decorators."""
        return self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Omit bases and decorators."""
        node.body = self._statements(node.body)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Omit the annotation."""
        node.value = None if node.value is None else self.visit(node.value)
        return node


def _name() -> ast.Name:
    return ast.Name(CHOSEN, ast.Load())


def _choices(node: ast.expr, wanted: list[tuple[int, ast.expr]]) -> ast.expr:
    for number, changed in wanted:
        node = ast.IfExp(ast.Compare(_name(), [ast.Eq()], [ast.Constant(number)]), changed, node)
    return node


def sites(file: str, text: str) -> list[Site]:
    walk = Changed(file, {})
    walk.visit(ast.parse(text))
    return walk.sites


def changed(file: str, text: str, chosen: Mapping[int, int]) -> str:
    """Return the source with these changes, each with its number.

    Args:
        file: the path of the source. The changed source imports `_mutant` from `brick_agent` if the path contains this
            name, and from `brickd` otherwise.
        text: the source.
        chosen: the numbers of the mutants, by the place of their sites.
    """
    tree = Changed(file, chosen).visit(ast.parse(text))
    package = "brick_agent" if "brick_agent" in file else "brickd"
    # Insert the import after the docstring and the statements that must be first.
    place = 1 if ast.get_docstring(tree) is not None else 0
    while place < len(tree.body) and getattr(tree.body[place], "module", None) == "__future__":
        place += 1
    tree.body.insert(place, ast.ImportFrom(f"{package}._mutant", [ast.alias("CHOSEN", CHOSEN)], 0))
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
