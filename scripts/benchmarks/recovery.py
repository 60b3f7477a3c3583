"""Try to recover a server's prompts from a recording of its checksums.

The attacker has the same weights, and records the results of each token of the vocabulary. The guess is the token whose
results are nearest to the recorded values. The attack uses all data of a recording about a tensor. For comparison, the
table shows what equal checksums reveal to an attacker who knows the frequency of each token.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.recordings import checksums, recording
from benchmarks.replicas import SEED, SIZE, Service, replicas
from benchmarks.report import Table
from benchmarks.workplace import Workplace, progress
from brickd.demo.transformer import drawn

_TOKENS, _QUICK_TOKENS = 1_024, 256
_VOCABULARY = range(SIZE.vocabulary)
_TIMES = 4  # if tokens have realistic frequencies, there are this many times as many requests
_WORKS_PERCENT = 95.0
_DEVIATIONS = 4.0  # random guesses exceed their mean by this many standard deviations in one of 30,000 runs
# how many numbers a sketch has; how many numbers the statistics of a tensor have, and which of these is the norm
_PLACES, _NUMBERS, _L2 = 16, 6, 1
_EMBEDDED = 1  # the index of the first recorded input, which is the token's embedding
_ROUNDED = 2.5e-7  # the relative rounding error of a sketch's number, which is a float32
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Recorded:
    """What was recorded of some requests. Each request has one token, and one row here.

    Attributes:
        checksums: the checksums of all tensors, with the service's key.
        sketches: the sketches of all tensors, with the service's key.
        statistics: the statistics of all tensors, without a key.
    """

    checksums: NDArray[np.uint64]
    sketches: Matrix
    statistics: Matrix

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]], requests: int) -> Recorded:
        """Read the checksums of a worker with one request per step.

        Raises:
            RuntimeError: some checksums are missing.
        """
        steps: dict[int, list[Mapping[str, Any]]] = {}
        for event in events:
            output, *inputs = event["tensors"]
            steps.setdefault(event["step"], []).extend([output | {"fnv1a": event["output"]["fnv1a"]}, *inputs])
        rows = list(steps.values())
        if (len(rows), len({len(row) for row in rows})) != (requests, 1):
            raise RuntimeError(
                f"{len(rows)} requests were recorded, expected {requests}, each with the same number of tensors"
            )
        return cls(
            np.array([[tensor["checksum"] for tensor in row] for row in rows], np.uint64),
            np.array([[place for tensor in row for place in tensor["places"]] for row in rows], np.float64),
            np.array([[number for tensor in row for number in _numbers(tensor)] for row in rows], np.float64),
        )


def _numbers(tensor: Mapping[str, Any]) -> Sequence[float]:
    # The hash becomes two numbers, which are near those of another hash only if the two hashes are equal.
    fnv1a = tensor.get("fnv1a") or 0
    statistics = (tensor[name] or 0.0 for name in ("mean", "l2", "min", "max"))
    return *statistics, fnv1a >> 32, fnv1a & 0xFFFF_FFFF


Attack = Callable[[Recorded, Recorded], NDArray[np.int64]]


def by_checksums(seen: Recorded, known: Recorded) -> NDArray[np.int64]:
    """Return for each request the token with the most checksums in common."""
    return np.array([np.argmax((known.checksums == row).sum(axis=1)) for row in seen.checksums])


def by_sketches(seen: Recorded, known: Recorded) -> NDArray[np.int64]:
    """Return for each request the token with the nearest sketches."""
    return _nearest(seen.sketches, known.sketches)


def by_statistics(seen: Recorded, known: Recorded) -> NDArray[np.int64]:
    """Return for each request the token with the nearest statistics, which need no key."""
    return _nearest(seen.statistics, known.statistics)


def by_norms(seen: Recorded, known: Recorded) -> NDArray[np.int64]:
    """Return for each request the likeliest token, by tensor norms estimated from sketches."""
    found, norms, own = _sketched(seen), known.statistics[:, _L2::_NUMBERS], _sketched(known)
    usable = (found > 0).all(axis=0) & (norms > 0).all(axis=0) & (own > 0).all(axis=0)
    if not usable.any():
        return np.zeros(len(found), np.int64)
    # From the sketches of known tokens, the attacker learns the errors of the estimates and their correlation.
    off = np.log(own[:, usable] / norms[:, usable])
    whitening = np.linalg.cholesky(np.linalg.inv(np.cov(off.T) + 1e-4 * np.eye(off.shape[1])))
    return _closest(np.log(found[:, usable]) @ whitening, (np.log(norms[:, usable]) + off.mean(axis=0)) @ whitening)


def _sketched(of: Recorded) -> Matrix:
    norms: Matrix = np.linalg.norm(of.sketches.reshape(len(of.sketches), -1, _PLACES), axis=2)
    return norms


def by_any_key(seen: Recorded, _: Recorded) -> NDArray[np.int64]:
    """Return for each request the token whose embedding explains the first sketch best, if the key may be any key.

    The embedding has four blocks. Each number of the sketch is the sum of one element of each block, with unknown
    signs. To test a token, this computes all sums of two elements of the first two blocks, and all sums of the other
    two. If it is the right token, each number of the sketch is the sum of one number from each of the two lists.
    """
    sketches = seen.sketches[:, _PLACES * _EMBEDDED : _PLACES * (_EMBEDDED + 1)]
    sums = [_sums_of_halves(embedding) for embedding in drawn(SIZE, SEED)["embed_tokens.weight"].astype(np.float64)]
    return np.array([np.argmax([_made_of(places, *halves) for halves in sums]) for places in sketches])


def _sums_of_halves(embedding: Matrix) -> tuple[Matrix, Matrix]:
    one, two, three, four = (np.concatenate([block, -block]) for block in embedding.reshape(4, _PLACES))
    return np.sort(np.add.outer(one, two).ravel()), np.sort(np.add.outer(three, four).ravel())


def _made_of(places: Matrix, some: Matrix, others: Matrix) -> int:
    """Return how many places at the beginning are the sum of a number from `some` and a number from `others`."""
    for number, place in enumerate(places):
        wanted = place - some
        at = np.searchsorted(others, wanted)
        near = np.minimum(abs(others[at.clip(max=len(others) - 1)] - wanted), abs(others[(at - 1).clip(0)] - wanted))
        if near.min() > _ROUNDED * max(1.0, abs(place)):
            return number
    return len(places)


def by_frequency(seen: Recorded, commonest: Sequence[int]) -> NDArray[np.int64]:
    """Return for each request a token that occurs as often as the request's checksums."""
    found, which, counts = np.unique(seen.checksums[:, _EMBEDDED], return_inverse=True, return_counts=True)
    rank = np.empty(len(found), np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(found))
    return np.array(commonest)[rank[which]]


def _nearest(seen: Matrix, known: Matrix) -> NDArray[np.int64]:
    spread = known.std(axis=0)
    usable = spread > 0  # values that are equal for all tokens do not distinguish tokens
    return _closest(seen[:, usable] / spread[usable], known[:, usable] / spread[usable])


def _closest(seen: Matrix, known: Matrix) -> NDArray[np.int64]:
    closest: NDArray[np.int64] = np.argmin((known * known).sum(axis=1) - 2 * (seen @ known.T), axis=1)
    return closest


_KEYED: dict[str, Attack] = {"checksums": by_checksums, "sketches": by_sketches}
_KEYLESS: dict[str, Attack] = {
    "statistics": by_statistics,
    "norms of sketches": by_norms,
    "sketches of any key": by_any_key,
}


def recovery(place: Workplace, quick: bool, seed: int) -> Table:
    """Attack recordings that users make or share, and a recording with all sites and a known key."""
    chance = random.Random(seed)
    asked = [chance.randrange(SIZE.vocabulary) for _ in range(_QUICK_TOKENS if quick else _TOKENS)]
    theirs, ours = (_with(place, BRICKD_STATE_DIR=str(place.folder / whose)) for whose in ("theirs", "ours"))
    every = _with(theirs, BRICKD_SENSITIVE="1")
    rows: list[dict[str, Any]] = []

    def attacked(case: str, seen: Recorded, known: Recorded, attacks: Mapping[str, Attack], *, works: bool) -> None:
        for by, attack in attacks.items():
            right = int((attack(seen, known) == asked).sum())
            rows.append(_row(f"{case}: by {by}", right, len(asked), works=works, seed=seed))

    known = _recorded(ours, "ours", _VOCABULARY, "--values")
    attacked("default", _recorded(theirs, "theirs", asked), known, _KEYED | _KEYLESS, works=False)
    attacked("--redact", _recorded(theirs, "redacted", asked, "--redact"), known, _KEYED | _KEYLESS, works=False)
    attacked("--values", _recorded(theirs, "values", asked, "--values"), known, _KEYLESS, works=True)
    seen, known = _recorded(every, "seen", asked, "--values"), _recorded(every, "known", _VOCABULARY, "--values")
    attacked("--values, BRICKD_SENSITIVE=1, key known", seen, known, _KEYED, works=True)
    rows += _of_a_skewed_corpus(theirs, chance, len(asked), seed)
    title = f"Tokens recovered from a recording,  {SIZE.vocabulary} in the vocabulary"
    return Table("recovery", title, rows)


def _of_a_skewed_corpus(place: Workplace, chance: random.Random, requests: int, seed: int) -> list[dict[str, Any]]:
    """Attack recordings in which the n-th token has the frequency 1/n. There is no goal, because this recovery cannot
    be prevented.
    """
    commonest = chance.sample(_VOCABULARY, SIZE.vocabulary)
    shares = [1 / rank for rank in range(1, SIZE.vocabulary + 1)]
    asked = chance.choices(commonest, shares, k=_TIMES * requests)
    blind = asked.count(commonest[0])
    rows: list[dict[str, Any]] = []
    for case, options in {"default": (), "--redact": ("--redact",)}.items():
        seen = _recorded(place, f"skewed{len(rows)}", asked, *options)
        right = int((by_frequency(seen, commonest) == asked).sum())
        row = _row(f"{case}, skewed corpus: by frequency", right, len(asked), works=False, seed=seed)
        rows.append(row | {"by_chance": blind, "goal": None, "passed": None})
    return rows


def _with(place: Workplace, **variables: str) -> Workplace:
    return replace(place, environment=place.environment | variables)


def _recorded(place: Workplace, service: str, tokens: Sequence[int], *options: str) -> Recorded:
    progress(f"{len(tokens)} tokens into a recording: {service}")
    prompts = tuple((token,) for token in tokens)
    with recording(place, service, *options) as file:
        with replicas(place, [Service(service, 1, prompts, steps=1)]):
            pass
        place.await_burial()
    found = Recorded.of(checksums(file, f"{service}/0"), len(tokens))
    file.unlink()
    return found


def _row(case: str, recovered: int, tried: int, *, works: bool, seed: int) -> dict[str, Any]:
    well = 100 * recovered >= _WORKS_PERCENT * tried if works else at_chance(recovered, tried, SIZE.vocabulary)
    return {
        "case": case,
        "tokens": tried,
        "recovered": recovered,
        "by_chance": round(tried / SIZE.vocabulary),
        "seed": seed,
        "goal": f">= {_WORKS_PERCENT:g} %: the attack works" if works else "at chance",
        "passed": well,
        "note": "",
        "skipped": None,
    }


def at_chance(recovered: int, tried: int, vocabulary: int) -> bool:
    """Return whether the recovered tokens are so few that random guesses would explain them."""
    expected = tried / vocabulary
    return recovered <= expected + _DEVIATIONS * math.sqrt(expected) + 1
