"""Numeric classes: groups of workers that add up the same numbers in the same order.

Owns: the known classes, when they are checked, which members of a group are judged. Must not know: the rule for a class
(match_classes.c), the report on a worker that differs. Invariants: While it is unknown whether two different outputs
come from two classes, no worker is named and nothing counts as judged. A round of comparisons makes a bounded number of
checks; every site gets its turn. A worker of a third class never decides which of two workers is right. All state is
bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from brickd.analysis.numerics.evidence import add
from brickd.analysis.numerics.online_state import CLASSES_MAX, WORKERS_MAX, Apart, Case, ServiceSite
from brickd.shm import _reader

TURNS_MAX = 4  # checks in one look; each check reads all fingerprints once
_OUTPUTS_MAX = 4  # compared outputs in a group: the most frequent ones, and the one to judge
# A group's most frequent outputs are examined, up to this number. Those that are not compared may be of another class.
_NEAR_MAX = 16
_WAITING_MAX = 1_024

# For each worker and output: the count, and the sequence number of the newest fingerprint.
Group = Sequence[tuple[int, int, int, int]]


class JudgeTurns:
    """The queue of sites to judge. The site that has waited longest is next.

    Up to two fingerprints wait per site: one that differs in at most one value of the sketch, and one that differs in
    several values. So a fingerprint that shows a flipped bit is never displaced by one that shows a difference between
    classes. `denied` tells whether a site got no turn in this round of comparisons.
    """

    def __init__(self, turns: int = TURNS_MAX) -> None:
        self._turns_max = turns
        self._waiting: dict[tuple[ServiceSite, bool], int] = {}
        self._left: Counter[ServiceSite] = Counter()  # the turns of each site that are left in this look
        self._asked = set[ServiceSite]()
        self._others = 0
        self.denied = False

    def begin(self) -> list[int]:
        """Begin another round of comparisons; return the fingerprints whose turn comes next."""
        waiting = sorted(self._waiting.items(), key=lambda each: each[0][0] in self._asked)  # sorting is stable
        first, self._waiting = waiting[: self._turns_max], dict(waiting[self._turns_max :])
        self._left = Counter(place for (place, _), _ in first)
        self._others, self._asked, self.denied = self._turns_max - len(first), set(), False
        return [number for _, number in first]

    def take(self, place: ServiceSite) -> bool:
        """Use up one turn for a site; return False if no turn is left."""
        if self._left[place]:
            self._left[place] -= 1
        elif self._others:
            self._others -= 1
        else:
            self.denied = True
            return False
        self._asked.add(place)
        return True

    def wait(self, place: ServiceSite, number: int, *, once: bool) -> bool:
        """Queue a fingerprint whose judgement is undecided; return False if another one of the site already waits."""
        if len(self._waiting) >= _WAITING_MAX:
            return (place, once) not in self._waiting
        return self._waiting.setdefault((place, once), number) == number


class GroupToJudge(NamedTuple):
    """A group prepared for judgement.

    Attributes:
        group: the outputs that can decide the judgement; those that differ only by their classes count as one.
        whole: whether every pair of outputs is decided.
        once: whether an undecided difference may be one flipped bit.
    """

    group: Group
    whole: bool
    once: bool = False


class _Output(NamedTuple):
    """An output, its newest fingerprint, and the uuids of the workers that computed this output and no other."""

    output: int
    newest: int
    workers: frozenset[str]


@dataclass
class Learning:
    """The numeric classes that a round of comparisons finds; `fresh` has the sites with new classes."""

    fingerprints: _reader.Fingerprints
    turns: JudgeTurns
    living: Collection[str]
    apart: dict[ServiceSite, Apart]
    fresh: set[ServiceSite] = field(default_factory=set)

    def read(self, place: ServiceSite, group: Group, uuids: Mapping[int, str], who: int) -> GroupToJudge:
        """Prepare a group of fingerprints for judgement; `who` is the worker to judge."""
        times = Counter(worker for worker, *_ in group)
        steady = {worker: output for worker, output, *_ in group if times[worker] == 1}
        outputs = _outputs(group, steady, uuids, who)
        if len(outputs) < 2:
            return GroupToJudge(group, whole=True)
        outputs, others = outputs[:_OUTPUTS_MAX], outputs[_OUTPUTS_MAX:_NEAR_MAX]
        apart = {each.output: set[int]() for each in outputs}
        unknown = []
        for one, other in combinations(outputs, 2):
            rounded = self.fingerprints.rounded(one.newest, other.newest)
            known = rounded != _reader.ROUNDED_NOT and self._are_two(place, one, other)
            if known is None:
                unknown.append(rounded)
            elif not known:
                apart[one.output].add(other.output)
                apart[other.output].add(one.output)
        near = {each.output: found for each in others if (found := self._near(each, outputs))}
        unknown += near.values()  # each of these outputs may be of another class
        return GroupToJudge(_folded(group, steady, outputs, apart, near), not unknown, _reader.ROUNDED_ONCE in unknown)

    def _near(self, one: _Output, outputs: Sequence[_Output]) -> int:
        """Whether rounding may explain the difference between this output and one of the others."""
        found = (self.fingerprints.rounded(one.newest, other.newest) for other in outputs)
        return next(filter(None, found), _reader.ROUNDED_NOT)

    def _are_two(self, place: ServiceSite, one: _Output, other: _Output) -> bool | None:
        """Whether two outputs, which may differ by rounding, are of two classes; None if undecided."""
        known = self.apart.get(place, ())
        if not are_two(known, one.workers, other.workers):
            if not self.turns.take(place):
                return None
            contents = self.fingerprints.contents(one.newest, other.newest)
            if contents < _reader.CONTENTS_MIN:
                return None if contents else False
            self.fresh.add(place)
        if place in self.apart or len(self.apart) < CLASSES_MAX:
            self.apart[place] = with_two(known, one.workers, other.workers, self.living)
        return True

    def explains(self, place: ServiceSite, case: Case) -> bool:
        """Whether two classes explain a stored case."""
        one, other = case.against, case.other
        if not case.whole or not are_two(self.apart.get(place, ()), {one.worker}, {other.worker}):
            return False
        fingerprints = _reader.Fingerprints(1)
        for number, each in enumerate((one, other)):
            add(fingerprints, each, number, 0, 1)
        return fingerprints.rounded(0, 1) != _reader.ROUNDED_NOT


def _outputs(group: Group, steady: Mapping[int, int], uuids: Mapping[int, str], who: int) -> list[_Output]:
    """Return the outputs to compare, the most frequent first. The output of `who` is always one of them."""
    found: dict[int, list[tuple[int, int]]] = {}
    for worker, output, _, newest in group:
        if worker in steady and worker in uuids:
            found.setdefault(output, []).append((worker, newest))
    ranked = sorted(found, key=lambda output: (-len(found[output]), min(found[output])))
    own = steady.get(who)
    if own is not None and own in ranked[_OUTPUTS_MAX:]:
        ranked.remove(own)
        ranked.insert(_OUTPUTS_MAX - 1, own)
    return [
        _Output(
            output,
            max(newest for _, newest in found[output]),
            frozenset(uuids[worker] for worker, _ in found[output]),
        )
        for output in ranked[:_NEAR_MAX]
    ]


def _folded(
    group: Group,
    steady: Collection[int],
    outputs: Sequence[_Output],
    apart: Mapping[int, set[int]],
    near: Collection[int],
) -> Group:
    """Merge outputs that differ from the same other outputs; drop outputs that cannot decide.

    An output cannot decide in two cases: it is near to another output, or it differs from no other output although
    other outputs differ from each other.
    """
    any_apart = any(apart.values())
    first: dict[frozenset[int], _Output] = {}
    as_one = {each.output: first.setdefault(frozenset(apart[each.output]), each) for each in outputs}
    rows = []
    for worker, output, times, newest in group:
        merged = as_one.get(output)
        if merged is None:
            if worker not in steady or output not in near:
                rows.append((worker, output, times, newest))
        elif worker not in steady:
            rows.append((worker, merged.output, times, newest))
        elif apart[output] or not any_apart:
            rows.append((worker, merged.output, times, newest if output == merged.output else merged.newest))
    return rows


_PAIRS_MAX = 16
_UUIDS_MAX = 4 * WORKERS_MAX


def are_two(apart: Apart, some: AbstractSet[str], others: AbstractSet[str]) -> bool:
    """Whether a worker in `some` is known to be of another class than a worker in `others`.

    >>> known = ((frozenset("ab"), frozenset("c")),)
    >>> are_two(known, {"a"}, {"c", "d"}), are_two(known, {"a"}, {"b"}), are_two(known, {"a"}, {"d"})
    (True, False, False)
    """
    return any(bool(one & some and two & others) or bool(one & others and two & some) for one, two in apart)


def with_two(apart: Apart, some: AbstractSet[str], others: AbstractSet[str], living: Collection[str]) -> Apart:
    """Add the knowledge that the workers `some` are of one class, and the workers `others` of another class.

    If there is no room for it, workers that have ended are dropped.
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
    """Return the known classes of some workers.

    >>> classes_of(((frozenset("ab"), frozenset("c")), (frozenset("ab"), frozenset("d"))), "abcdef")
    [['a', 'b'], ['c', 'd']]
    """
    found: dict[frozenset[str], list[str]] = {}
    for uuid in workers:
        apart_from = [two if uuid in one else one for one, two in apart if uuid in one or uuid in two]
        if apart_from:
            found.setdefault(frozenset().union(*apart_from).intersection(workers), []).append(uuid)
    return [each for others, each in found.items() if others]
