"""What of new findings is told, and how often.

Owns: which of them has an event of its own, and when others are told as a number. Must not know: how a finding comes
about, what is kept. Invariants: the first place at which a worker is named is told; however many there are, what is
told of one worker is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from brickd.events import Tell
from brickd.numerics.compared import Finding
from brickd.numerics.told import tell_finding, tell_joined, tell_number

_EACH_MAX = 8  # places of a worker of which each is told; then their number is, whenever it has doubled


def tell_news(
    tell: Tell, before: Iterable[Finding], new: Sequence[Finding], joined: Sequence[tuple[Finding, Sequence[str]]]
) -> None:
    """Tell of what a look found.

    Args:
        tell: takes each event.
        before: all that had been found.
        new: what was not there.
        joined: what was, and the uuids of others that are outliers there now.
    """
    if not new and not joined:
        return
    known = Counter(who for finding in before for who in _whose(finding))
    now, told, more = known.copy(), set[tuple[str, ...]](), dict[tuple[str, ...], Finding]()
    for finding in new:
        own = [who for who in _whose(finding) if _is_few(now, who)]
        if own:
            tell_finding(tell, finding)
            others = [uuid for uuid, *rest in own if not rest and uuid != finding.named[0]]
            tell_joined(tell, finding, [uuid for uuid in others if (uuid,) not in told | known.keys()])
        told.update(own)
        more |= dict.fromkeys((who for who in _whose(finding) if who not in own), finding)
    for finding, fresh in joined:
        own = [(uuid,) for uuid in fresh if _is_few(now, (uuid,))]
        tell_joined(tell, finding, [uuid for (uuid,) in own])
        more |= {(uuid,): finding for uuid in fresh if (uuid,) not in own}
    for who, finding in more.items():
        if known[who] <= _EACH_MAX or now[who].bit_length() > known[who].bit_length():
            tell_number(tell, finding, who, now[who])


def _whose(finding: Finding) -> list[tuple[str, ...]]:
    """Each outlier, the worst first; or the two that disagree."""
    return [(uuid,) for uuid in finding.named] if finding.outliers else [tuple(sorted(set(finding.named)))]


def _is_few(places: Counter[tuple[str, ...]], who: tuple[str, ...]) -> bool:
    places[who] += 1
    return places[who] <= _EACH_MAX
