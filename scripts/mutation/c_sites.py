"""Changes of C sources: one text contains all changes of a file, and a number selects a change.

Owns: the operators, and the places where they do not apply. Must not know: the draw, tests, compilers. A changed
expression becomes `(BRICK_MUTANT(number) ? (changed) : (original))`; a removed statement becomes `{ if
(!BRICK_MUTANT(number)) statement }`. The compiler finds the changes that are not valid C.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import tree_sitter_c
from tree_sitter import Language, Node, Parser

from mutation.sites import Site

_SWAPPED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
    "+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|",
}  # fmt: skip
# Nodes that must stay unchanged, because the compiler needs a constant or a text there.
_CONSTANT = frozenset(
    {
        "sizeof_expression", "alignof_expression", "offsetof_expression", "array_declarator", "enumerator",
        "bitfield_clause", "static_assert_declaration", "preproc_def", "preproc_function_def", "preproc_include",
        "preproc_call", "attribute_specifier", "attribute_declaration", "gnu_asm_expression", "type_descriptor",
        "ERROR", "comment", "string_literal", "char_literal", "subscript_designator",
    }
)  # fmt: skip
_WHOLE = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)[uUlL]*")
_ONE = re.compile(r"1[uUlL]*")
# Calls that exist only in the builds of the tests. In releases, these calls are empty, so removing one has no effect.
_OF_TESTS = frozenset({"BRICK_POINT"})
_REVERSED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PARSER = Parser(Language(tree_sitter_c.language()))


def _text(node: Node) -> str:
    assert node.text is not None
    return node.text.decode()


def _changes(node: Node) -> Iterator[str]:
    """Return the changes of an expression."""
    if node.type == "binary_expression":
        left, operator, right = (node.child_by_field_name(name) for name in ("left", "operator", "right"))
        assert left is not None
        assert operator is not None
        assert right is not None
        swapped = _SWAPPED.get(_text(operator))
        if _text(operator) in _REVERSED and _chooses_one_side(node):
            swapped = _REVERSED[_text(operator)]
        if swapped is not None:
            yield f"{_text(left)} {swapped} {_text(right)}"
    elif node.type == "unary_expression" and _text(node).startswith("!"):
        argument = node.child_by_field_name("argument")
        assert argument is not None
        yield _text(argument)
    elif node.type == "number_literal" and _WHOLE.fullmatch(_text(node)):
        # The number 1 is usually a truth value, and 2 would also be true, so 1 becomes 0. Other numbers are increased
        # by one.
        yield "0" if _ONE.fullmatch(_text(node)) else f"{_text(node)} + 1"


def _chooses_one_side(comparison: Node) -> bool:
    """Return whether a comparison belongs to a minimum or a maximum, `a < b ? a : b`: if a equals b, both sides are
    right.
    """
    above = comparison.parent
    while above is not None and above.type == "parenthesized_expression":
        above = above.parent
    if above is None or above.type != "conditional_expression":
        return False
    fields = [(comparison, "left"), (comparison, "right"), (above, "consequence"), (above, "alternative")]
    left, right, then, otherwise = (_text(child) for of, name in fields if (child := of.child_by_field_name(name)))
    return {left, right} == {then, otherwise}


def _is_removable(node: Node) -> bool:
    if node.type != "expression_statement" or not node.named_children:
        return False
    called = node.named_children[0].child_by_field_name("function")
    if called is not None and _text(called) in _OF_TESTS:
        return False
    return node.named_children[0].type in ("call_expression", "assignment_expression", "update_expression")


def _is_swapped_whole(condition: Node) -> bool:
    """Return whether the only change of a condition is its negation."""
    (test,) = condition.named_children[-1:]
    operator = test.child_by_field_name("operator")
    return operator is not None and _text(operator) in ("==", "!=", "!")


class _Walk:
    def __init__(self, file: str, source: bytes, chosen: Mapping[int, int]) -> None:
        self.sites: list[Site] = []
        self._file, self._source, self._chosen = file, source, chosen

    def _number(self, node: Node, change: str) -> int | None:
        site = Site(self._file, len(self.sites), node.start_point[0] + 1, " ".join(change.split()))
        self.sites.append(site)
        return self._chosen.get(site.place)

    def text(self, node: Node, inside: bool = False) -> str:
        """Return the new text of a node. `inside` says whether the node is in a function, where code runs."""
        raw = _text(node)
        if node.type in _CONSTANT or (node.type == "declaration" and re.match(r"\s*static\b", raw)):
            return raw
        wanted: list[tuple[int, str]] = []
        if inside:
            for change in _changes(node):
                number = self._number(node, f"{raw} -> {change}")
                if number is not None:
                    wanted.append((number, change))
        removed = self._number(node, f"remove {raw}") if inside and _is_removable(node) else None
        negated = None
        condition = node.child_by_field_name("condition") if node.type == "if_statement" else None
        if inside and condition is not None and not _is_swapped_whole(condition):
            negated = self._number(node, f"if {_text(condition)} -> if (!{_text(condition)})")
        found = self._children(node, inside or node.type == "compound_statement", negated)
        for number, change in wanted:
            found = f"(BRICK_MUTANT({number}) ? ({change}) : ({found}))"
        return found if removed is None else f"{{ if (!BRICK_MUTANT({removed})) {found} }}"

    def _children(self, node: Node, inside: bool, negated: int | None) -> str:
        parts, at = [], node.start_byte
        label = node.child_by_field_name("value") if node.type == "case_statement" else None
        condition = node.child_by_field_name("condition") if node.type in ("preproc_if", "preproc_elif") else None
        tested = node.child_by_field_name("condition") if negated is not None else None
        for child in node.children:
            parts.append(self._source[at : child.start_byte].decode())
            fixed = child in (label, condition)
            found = _text(child) if fixed else self.text(child, inside)
            parts.append(f"(BRICK_MUTANT({negated}) ? !{_text(child)} : !!{found})" if child == tested else found)
            if tested is not None and child == tested:
                parts[-1] = f"({parts[-1]})"
            at = child.end_byte
        return "".join(parts) + self._source[at : node.end_byte].decode()


def sites(file: str, text: str) -> list[Site]:
    source = text.encode()
    walk = _Walk(file, source, {})
    walk.text(_PARSER.parse(source).root_node)
    return walk.sites


def changed(file: str, text: str, chosen: Mapping[int, int]) -> str:
    """Return the source with these changes, each with its number.

    Args:
        file: the name of the source.
        text: the source.
        chosen: the numbers of the mutants, by the place of their sites.
    """
    source = text.encode()
    root = _PARSER.parse(source).root_node
    found = source[: root.start_byte].decode() + _Walk(file, source, chosen).text(root)
    # Insert the header before the first function with a change, because some includes may have to come before the
    # header.
    first = found[: found.index("BRICK_MUTANT(")]
    place = max(_beginnings(found, len(first)), default=0)
    return f'{found[:place]}#include "brick_mutant.h"\n{found[place:]}'


def _beginnings(text: str, before: int) -> Iterator[int]:
    """Yield where a function may begin before a position: at a line that begins with a name and is the first line, or
    follows an empty line, a closing brace, a comment or a line of the preprocessor.
    """
    for match in re.finditer(r"(?m)(?:\A|^\s*\n|^\}\n|\*/\n|^#[^\n]*[^\\\n]\n)(?=[A-Za-z_])", text[:before]):
        yield match.end()
