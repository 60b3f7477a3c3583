"""Who of a place computes in which numeric class: the same numbers, added up in another order.

Owns: what is known of that, as a value. Must not know: how it is learned, fingerprints. Invariants: of two who were not
seen to be of two classes, nor stand beside those who say the same, nothing is known; it is bounded.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet

from brickd.numerics.compared import WORKERS_MAX, Apart

_PAIRS_MAX = 16
_UUIDS_MAX = 4 * WORKERS_MAX


def are_two(apart: Apart, some: AbstractSet[str], others: AbstractSet[str]) -> bool:
    """Whether anybody of some is known to be of another class than anybody of others.

    >>> known = ((frozenset("ab"), frozenset("c")),)
    >>> are_two(known, {"a"}, {"c", "d"}), are_two(known, {"a"}, {"b"}), are_two(known, {"a"}, {"d"})
    (True, False, False)
    """
    return any(bool(one & some and two & others) or bool(one & others and two & some) for one, two in apart)


def with_two(apart: Apart, some: AbstractSet[str], others: AbstractSet[str], living: Collection[str]) -> Apart:
    """Where all of some say the same, and all of others what those of another class say.

    Where there is no room, those who have ended go.

    >>> known = with_two((), {"a", "b"}, {"c"}, "abcde")
    >>> [[sorted(each) for each in two] for two in with_two(known, {"c", "d"}, {"a"}, "abcde")]
    [[['a', 'b'], ['c', 'd']]]
    >>> [[sorted(each) for each in two] for two in with_two(known, {"a"}, {"b"}, "abcde")]
    [[['a', 'b'], ['c']], [['a'], ['b']]]
    """
    found: dict[tuple[frozenset[str], frozenset[str]], None] = {}
    joined = False
    for one, two in apart:
        if one & some and two & others:
            found[one | some, two | others] = None
        elif one & others and two & some:
            found[one | others, two | some] = None
        else:
            found[one, two] = None
            continue
        joined = True
    if not joined:
        found[frozenset(some), frozenset(others)] = None
    if _is_too_much(found):
        alive = frozenset(living)
        found = {(one & alive, two & alive): None for one, two in found if one & alive and two & alive}
    return apart if _is_too_much(found) else tuple(found)


def _is_too_much(found: Collection[tuple[frozenset[str], frozenset[str]]]) -> bool:
    return len(found) > _PAIRS_MAX or sum(len(one) + len(two) for one, two in found) > _UUIDS_MAX


def classes_of(apart: Apart, workers: Collection[str]) -> list[list[str]]:
    """Those of some workers of whom anything is known, who are of one class together.

    >>> classes_of(((frozenset("ab"), frozenset("c")), (frozenset("ab"), frozenset("d"))), "abcdef")
    [['a', 'b'], ['c', 'd']]
    """
    found: dict[frozenset[str], list[str]] = {}
    for uuid in workers:
        beside = [two if uuid in one else one for one, two in apart if uuid in one or uuid in two]
        if beside:
            found.setdefault(frozenset().union(*beside).intersection(workers), []).append(uuid)
    return [each for others, each in found.items() if others]
