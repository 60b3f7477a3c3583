"""A problem: what is wrong, in which workers of a service, and the next command.

Owns: the fields and the id of a problem, the merging of equal problems of several workers. Must not know: how a problem
is found, how long it lasts, screens. Invariants: The id depends only on kind, service and subject. So it stays the same
when the daemon restarts, and when other workers are selected. The number of names in a problem is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from brickd.base.json_values import U64_MAX
from brickd.base.units import listed, plural

WORKERS_MAX = 64

Kind = Literal[
    "weights", "numbers", "nan", "stuck", "memory", "slower", "straggler", "off", "unread", "quarantined", "daemon",
    "died", "lost", "uncounted",
]  # fmt: skip


class Problem(NamedTuple):
    """A problem as it was at one moment.

    Attributes:
        workers: the names of the first workers that have it, the worst first; empty if it concerns no worker.
        text: a sentence that describes the problem.
        command: the next command to run.
        subject: distinguishes the problem from others of the same kind and service.
        mark: a number that grows when the cause is seen again; None for a condition that is true now.
        first_ns: when the cause was first seen, since 1970; None if unknown.
        last_ns: when the cause was last seen, since 1970; None if unknown.
    """

    kind: Kind
    service: str | None
    workers: tuple[str, ...]
    text: str
    command: str
    subject: str = ""
    mark: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None

    @property
    def id(self) -> str:
        """The id of the problem: eight hexadecimal digits.

        >>> Problem("off", "api", (), "recording is off", "brickd set").id
        '09d33a43'
        """
        return problem_id(self.kind, self.service, self.subject)


def problem_id(kind: Kind, service: str | None, subject: str = "") -> str:
    """Return the id of the problem of this kind, service and subject."""
    from hashlib import blake2b  # here, because it loads OpenSSL, which takes 2 ms

    parts = (kind, "" if service is None else f"={service}", subject)
    return blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=4).hexdigest()


def merged(found: Iterable[Problem]) -> list[Problem]:
    """Merge the problems with the same id: keep the problem of the worst worker, and count the other workers."""
    alike: dict[str, list[Problem]] = {}
    for each in found:
        alike.setdefault(each.id, []).append(each)
    return [_merged(each) for each in alike.values()]


def _merged(alike: list[Problem]) -> Problem:
    worst = alike[0]
    if len(alike) == 1:
        return worst._replace(workers=worst.workers[:WORKERS_MAX])
    workers = list(dict.fromkeys(name for each in alike for name in each.workers))
    others = [name for name in workers if name not in worst.workers]
    more = f" (and {plural(len(others), 'more worker')}: {listed(others)})" if others else ""
    return worst._replace(
        workers=tuple(workers[:WORKERS_MAX]),
        text=f"{worst.text}{more}",
        mark=_together([each.mark for each in alike], lambda marks: min(U64_MAX, sum(marks))),
        first_ns=_together([each.first_ns for each in alike], min),
        last_ns=_together([each.last_ns for each in alike], max),
    )


def _together(values: list[int | None], add: Callable[[list[int]], int]) -> int | None:
    known = [each for each in values if each is not None]
    return add(known) if len(known) == len(values) else None
