"""The operands of `diff`: workers of this machine, of recordings, or both.

Owns: the meaning of each argument, the source of the answer. Must not know: the comparison, screens. Invariants: The
document is the same from every source. If all operands are workers of this machine, a running daemon answers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brickd.errors import NothingComparable
from brickd.query.queries import DiffQuery
from brickd.recording.rotation import parted
from brickd.views import fetch_answer
from brickd.views.fetch_answer import FetchedAnswer, Reading, silent


@dataclass(frozen=True, slots=True)
class Term:
    """An argument: a recording ("" is this machine), and a worker or service ("" is all workers)."""

    path: str
    name: str


def term(word: str) -> Term:
    """Parse an argument. For example, `run.brick:api/0` is a worker of a recording."""
    if parted([word])[0]:
        return Term(word, "")
    for at, char in enumerate(word):
        if char == ":" and at + 1 < len(word) and parted([word[:at]])[0]:
            return Term(word[:at], word[at + 1 :])
    return Term("", word)


def require_comparable(document: Mapping[str, Any]) -> None:
    """Raise NothingComparable if nothing is comparable."""
    if document["verdict"] == "not_comparable":
        raise NothingComparable(document["reasons"][0])


def find(query: DiffQuery, reading: Reading = silent) -> FetchedAnswer:
    """Answer a query whose names are the arguments of the command line."""
    terms = _spread([term(word) for word in query.names])
    paths = list(dict.fromkeys(each.path for each in terms if each.path))
    if not paths:
        return fetch_answer.find("diff", query)
    sets = _sets(paths)
    if len(sets) == 1 and all(each.path for each in terms):
        names = tuple(each.name for each in terms if each.name) if all(each.name for each in terms) else ()
        return fetch_answer.find("diff", query.replaced(names=names), recordings=paths, reading=reading)
    return _gathered(query, terms, sets, reading)


def _spread(terms: Sequence[Term]) -> list[Term]:
    """Combine each recording that stands alone with each name that stands alone."""
    bare = [each for each in terms if each.path and not each.name]
    names = [each for each in terms if not each.path]
    if not bare or not names:
        return list(terms)
    return [Term(each.path, name.name) for each in bare for name in names] + [e for e in terms if e.path and e.name]


def _sets(paths: Sequence[str]) -> list[list[str]]:
    from brickd.recording.chunks import open_recording

    sets: dict[bytes, list[str]] = {}
    for path in paths:
        with open_recording(path) as form:
            sets.setdefault(form.title.id, []).append(path)
    return list(sets.values())


def _gathered(
    query: DiffQuery, terms: Sequence[Term], sets: Sequence[Sequence[str]], reading: Reading
) -> FetchedAnswer:
    from brickd.datasources.several_worlds import Gathered, Live, WorldPart
    from brickd.recording.replay import opened
    from brickd.views import diff

    of = {path: each[0] for each in sets for path in each}
    with contextlib.ExitStack() as stack:
        reads = stack.enter_context(reading())
        worlds = [stack.enter_context(opened(each, reads)) for each in sets]
        recorded = [WorldPart(each[0], world) for each, world in zip(sets, worlds, strict=True)]
        # Live workers are added first. The time of a loss depends on the fingerprints that were added before it, so
        # recorded fingerprints would change it.
        here = [WorldPart("", Live())] if any(not each.path for each in terms) else []
        world = Gathered([*here, *recorded])
        names = []
        for each in terms:
            part = next(part for part in world.parts if part.label == of.get(each.path, ""))
            everybody = [worker.name for worker in world.survey().workers if worker.name.startswith(part.name(""))]
            names += [part.name(each.name)] if each.name else everybody
        answer = diff.answer(world, query.replaced(names=tuple(names)))
        recordings = [each.document() for each in worlds]
        words = tuple(word for each in worlds for word in each.words())
        return FetchedAnswer({**answer.document, "recordings": recordings}, words + answer.words)
