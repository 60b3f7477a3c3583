"""The names of workers.

Owns: the names, their order, how they are quoted as arguments of a command, and suggestions for an unknown name. Must
not know: what was recorded, screens. Invariants: No two workers have the same name. Names depend only on the set of
workers. So a process that reads only the headers of segments finds the same names.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from brickd.base.units import listed
from brickd.shm.segment_copy import Identity

Who = TypeVar("Who", bound=Identity)
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


def named(everybody: Iterable[Who], remembered: Mapping[str, str] = _NO_NAMES) -> list[tuple[str, Who]]:
    """Give each worker its declared name, else its earlier name, else a name with the lowest free number.

    Live workers come first. So if a worker was restarted, the new process gets the name, and the dead one gets the name
    with a suffix. If several dead workers have the same name, the last one keeps it.

    Args:
        everybody: the workers to name.
        remembered: earlier names of workers without a declared name, keyed by uuid.

    Returns:
        All workers with their names, sorted by service and name.
        All workers with their names, by service and name.
    """
    by_age = sorted(everybody, key=lambda who: (not who.alive, who.header["started_ns"], who.uuid))
    had = [(who, _declared(who) or remembered.get(who.uuid)) for who in by_age]
    reserved = {name for who, name in had if who.alive or _declared(who)}
    holders: dict[str, Who] = {}
    for who, name in had:
        if name is not None and (name not in holders or not holders[name].alive):
            holders[name] = who
    taken: set[str] = set()
    result = []
    for who, before in had:
        name = before
        if name is None:
            numbers = (f"{who.service}/{number}" for number in itertools.count())
            name = next(free for free in numbers if free not in reserved and free not in taken)
        if name in taken or (before is not None and holders[before] is not who):
            name = f"{name}{_mark(who.uuid)}"
        taken.add(name)
        result.append((name, who))
    return sorted(result, key=lambda pair: (pair[1].service, _natural(pair[0])))


def _mark(uuid: str) -> str:
    return f"~{uuid[:6]}"


def has_mark(name: str, uuid: str) -> bool:
    """Whether a worker has only a name with a suffix, because another worker has the name without it."""
    return name.endswith(_mark(uuid))


def _declared(who: Identity) -> str | None:
    if who.coordinates:
        return f"{who.service}/{who.coordinates}"
    return f"{who.service}/{who.header['index']}" if who.header["index"] >= 0 else None


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that puts api/10 after api/9."""
    parts = ("".join(group) for _, group in itertools.groupby(name, str.isdecimal))
    return tuple((int(part), "") if part.isdecimal() and part.isascii() else (-1, part) for part in parts)


class KnownNames(NamedTuple):
    """Names workers in sentences about a finding. No worker gets the name that another worker has now.

    Attributes:
        names: the names of the known workers, keyed by uuid. These names are unique now, but two of the workers may
            have had the same name at the time of the finding.
        ended: the uuids of workers that are not alive.
    """

    names: Mapping[str, str]
    ended: Collection[str] = ()

    def name(self, then: Mapping[str, str], uuid: str) -> str:
        """Return the current name of a worker.

        If it has none, return its former name with a mark that makes it unique.
        """
        if now := self.names.get(uuid):
            return now
        mark = _mark(uuid)
        return f"{then[uuid].removesuffix(mark)}{mark}" if then.get(uuid) else uuid[:8]

    def mention(self, then: Mapping[str, str], uuid: str) -> str:
        """Return the name of a worker for a sentence, with a note if the worker has ended."""
        return f"{self.name(then, uuid)}{' (ended)' if uuid in self.ended else ''}"


def near(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the names that the user probably meant: those that contain the text or are similar to it.

    >>> near("api/1", ["batch/0", "api/10", "api/2"]), near("BATHC/0", ["batch/0", "api/0"])
    (['api/10', 'api/2'], ['batch/0'])
    """
    # Imported here, because it takes 2 ms and only an unknown name needs it.
    from difflib import get_close_matches

    spelled: dict[str, list[str]] = {}
    for each in sorted(known):
        spelled.setdefault(each.casefold(), []).append(each)
    wanted = name.casefold()
    holding = sorted(
        (each for each in spelled if wanted and wanted in each),
        key=lambda each: (not each.startswith(wanted), len(each), each),
    )
    close = get_close_matches(wanted, spelled, n=most)
    return [each for folded in dict.fromkeys(holding + close) for each in spelled[folded]][:most]


def suggestion(name: str, known: set[str]) -> str:
    """Return a hint for an unknown name: the names that the user probably meant, or else the known names.

    >>> suggestion("ap/1", {"api/1", "batch"}), suggestion("x", {"api/1"})
    ('did you mean api/1?', 'there are api/1')
    """
    if not known:
        return "nothing is recorded here"
    meant = near(name, known)
    if meant:
        return f"did you mean {' or '.join(meant)}?"
    return f"there are {listed(sorted(known))}"


def as_argument(name: str) -> str:
    """Quote a name as an argument of a command, because a worker chooses the text of its name.

    >>> as_argument("api/0"), as_argument("x; touch y"), as_argument("-x")
    ('api/0', "'x; touch y'", '-- -x')
    """
    return as_arguments([name])


def as_arguments(names: Sequence[str]) -> str:
    """Quote several names as arguments of a command.

    >>> as_arguments(["api/0", "-x", "-y"])
    '-- api/0 -x -y'
    """
    return f"{'-- ' if any(name.startswith('-') for name in names) else ''}{shlex.join(names)}"
