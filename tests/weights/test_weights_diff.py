"""Weights in `brickd diff`: what stays unknown, and how they are reported together with other evidence."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checked_record import CheckedRecord, Tensor
from comparable_workers import EMBED, MLP, NORM, SCORES, answered, chain, compared
from faults import Start
from running import running, until
from test_record import recording
from test_recording_files import chunks
from test_weights_verb import watching
from verbs import brickd, document, started
from watched_weights import SCANS

from brickd.base.paths import runtime
from brickd.errors import NothingComparable
from brickd.shm import _reader


def weights(generation: int = 1, *, ticks: int = 0, **sites: int | Tensor) -> list[CheckedRecord]:
    """Return the records of a worker's tensors, keyed by name."""
    of = {"embed": EMBED, "norm": NORM, "mlp": MLP}
    return [
        CheckedRecord(
            reported if isinstance(reported, Tensor) else Tensor(reported),
            site=of[name],
            step=generation,
            ticks=ticks,
            flags=_reader.CHECKED_WEIGHT,
        )
        for name, reported in sites.items()
    ]


def watched(count: int) -> Mapping[int, Mapping[str, int]]:
    """Return two workers that watch this number of tensors."""
    return {worker: {"weights": count, "scans": 1} for worker in range(2)}


def by_weights(*records: list[CheckedRecord], of: int, **how: Any) -> Any:
    return compared(*records, process=watched(of), by="weights", **how)


def test_fully_read_equal_weights_are_identical() -> None:
    reported = by_weights(weights(norm=1, mlp=2), weights(norm=1, mlp=2), of=2)
    assert (reported["verdict"], reported["compared"], reported["identical"], reported["incomplete"]) == (
        "identical",
        2,
        2,
        0,
    )


def test_incomparable_weights_are_reported_with_their_reason() -> None:
    def verdict_of(*answer: list[CheckedRecord], **world: Any) -> str:
        document = answered(*answer, by="weights", **world)
        assert (document["evidence"], document["verdict"]) == ("weights", "not_comparable")
        assert document["coverage"]["fingerprints"] == sum(map(len, answer))
        assert answer[0] == [] or document["not_comparable"]
        (reason,) = document["reasons"]
        return str(reason)

    two = {0: {"key": 7, "weights": 1, "scans": 1}, 1: {"key": 8, "weights": 1, "scans": 1}}
    assert verdict_of(weights(norm=1), weights(norm=1), process=two) == (
        "no weights of api/0 and api/1 are comparable: 2 tensors made with another key (set the same BRICKD_KEY_FILE"
        " for all)"
    )
    assert verdict_of(weights(1, norm=1), weights(2, norm=2), process=watched(1)).endswith(
        ": 2 tensors of another generation"
    )
    alone = ": 1 tensor of a single replica (two workers of a service with the same weights are needed)"
    assert verdict_of(weights(norm=1), []).endswith(alone)
    assert verdict_of([], []).startswith("no weights of api/0 and api/1 are recorded, expected weights of two replicas")
    with pytest.raises(NothingComparable, match=r"no fingerprints .*; no weights .* made with another key"):
        compared(weights(norm=1), weights(norm=1), process=two)


def test_unread_weights_make_the_verdict_incomplete_and_never_diverged() -> None:
    reported = by_weights(weights(norm=1, mlp=2), weights(norm=1), of=3)
    assert (reported["verdict"], reported["compared"], reported["diverged"], reported["incomplete"]) == (
        "incomplete",
        1,
        0,
        3,
    )
    assert reported["headlines"] == ["by weights: incomplete, 3 tensors are not known; equal: 1 tensor"]
    assert [each["uncertain"] for each in reported["workers"]] == [1, 2]
    assert reported["first"] is None


def test_a_partly_read_new_generation_is_incomplete() -> None:
    reloaded = weights(1, norm=1, mlp=2) + weights(2, ticks=9, norm=1)
    reported = by_weights(weights(2, norm=1, mlp=3), reloaded, of=2)
    assert (reported["verdict"], reported["compared"], reported["incomplete"]) == ("incomplete", 1, 1)
    assert reported["not_comparable"] == {"generation": 2}
    whole = by_weights(weights(2, norm=1, mlp=3), reloaded + weights(2, ticks=9, mlp=3), of=2)
    assert (whole["verdict"], whole["incomplete"]) == ("identical", 0)


def test_a_difference_is_certain_even_with_unread_records() -> None:
    reported = by_weights(weights(norm=1), weights(norm=2), of=9)
    assert (reported["verdict"], reported["diverged"], reported["incomplete"]) == ("diverged", 1, 16)


def test_weights_of_another_dtype_are_diverged() -> None:
    reported = by_weights(weights(norm=1, mlp=2), weights(norm=1, mlp=Tensor(2, dtype=10)), of=2)
    assert (reported["verdict"], reported["compared"], reported["identical"], reported["diverged"]) == (
        "diverged",
        2,
        1,
        1,
    )
    assert reported["headlines"] == [
        "by weights: diverged: api/0 and api/1 disagree, in mlp, layer 0",
        "api/1: float16 and not float32, relative error <1e-6",
    ]


def test_a_tensor_missing_in_a_fully_read_worker_is_diverged() -> None:
    process = {0: {"weights": 2, "scans": 1}, 1: {"weights": 1, "scans": 1}}
    reported = compared(weights(norm=1, mlp=2), weights(norm=1), process=process, by="weights")
    assert (reported["verdict"], reported["identical"], reported["diverged"], reported["incomplete"]) == (
        "diverged",
        1,
        1,
        0,
    )
    assert reported["headlines"][1] == "api/1: lacks it"
    assert reported["missing"] == {"a": 0, "b": 1}
    assert (reported["first"]["a"]["elements"], reported["first"]["b"]["elements"]) == (64, None)
    (site,) = reported["sites"]
    assert (site["fingerprints"], site["missing"]) == (1, 1)


@pytest.mark.ci
def test_a_worker_with_more_tensors_than_its_ring_is_not_called_equal(worker: Start, prefix: str) -> None:
    watching(worker, "0", "1", more="{f'more.{n}': array('f', [n]) for n in range(3000)}")
    answer = document("diff", "api", "--by", "weights")
    assert (answer["verdict"], answer["diverged"]) == ("incomplete", 0)
    assert answer["incomplete"] == sum(3003 - each["fingerprints"] for each in answer["workers"])
    assert brickd("diff", "api", "--by", "weights", "--fail-on", "incomplete").returncode == 1


# ---- with other evidence


ELSEWHERE = [replace(each, step=each.step + 50, inputs=(Tensor(1),), position=9) for each in chain()]


def test_equal_weights_lead_if_no_output_is_comparable() -> None:
    for other, fingerprints in ((ELSEWHERE, 24), ([], 12)):
        reported = compared(chain() + weights(norm=1), other + weights(norm=1), process=watched(1))
        assert (reported["evidence"], reported["verdict"], reported["first"]) == ("weights", "identical", None)
        assert reported["headlines"] == [
            "by weights: identical, api/0 and api/1: 1 tensor",
            f"outputs unproven (0 of {fingerprints} fingerprints compared): "
            f"{fingerprints} without a counterpart in another worker"
            " (if the workers did the same work: --by run)",
        ]
        assert reported["outputs"] == {"evidence": "input", "fingerprints": fingerprints, "compared": 0}
        assert reported["others"] == [{"evidence": "input", "verdict": "not_comparable", "compared": 0, "diverged": 0}]


def test_steps_with_one_key_and_different_caches_are_no_divergence() -> None:
    """Two decode steps have the same last token. They therefore have the same key, although their caches differ."""
    sides = [chain(born, sites=(SCORES, MLP)) + weights(norm=1) for born in (None, SCORES)]
    reported = compared(*sides, process=watched(1))
    assert (reported["evidence"], reported["verdict"], reported["diverged"]) == ("weights", "identical", 0)
    why = "outputs unproven (0 of 12 fingerprints compared): 3 of stateful kernels "
    assert reported["headlines"][1].startswith(why)
    assert reported["outputs"]["compared"] == 0


@pytest.mark.ci
def test_equal_weights_do_not_answer_for_a_step_or_a_time() -> None:
    reported = "; weights are equal (--by weights)"
    for part in ({"step": "77"}, {"since": 0.5}):
        with pytest.raises(NothingComparable, match=re.escape(reported)):
            compared(*[chain() + weights(norm=1)] * 2, process=watched(1), **part)
        with pytest.raises(NothingComparable, match=re.escape(reported)):
            compared(*[weights(norm=1)] * 2, process=watched(1), **part)
    with pytest.raises(NothingComparable, match="; weights are equal as far as they are known"):
        compared(chain() + weights(norm=1), ELSEWHERE + weights(norm=1), process=watched(2), by="input")
    with pytest.raises(NothingComparable, match="; weights differ"):
        compared(chain() + weights(norm=1), ELSEWHERE + weights(norm=2), process=watched(1), by="input")
    unread = compared(chain() + weights(norm=1), ELSEWHERE + weights(norm=1), process=watched(2))
    assert (unread["evidence"], unread["verdict"]) == ("weights", "incomplete")


def test_weights_lead_if_nothing_else_was_recorded_or_they_differ() -> None:
    alone = compared(*[weights(norm=1)] * 2, process=watched(1))
    assert (alone["verdict"], alone["headlines"]) == (
        "identical",
        [
            "by weights: identical, api/0 and api/1: 1 tensor",
            "outputs unproven: no fingerprints are recorded (call brick.checksum in the engine)",
        ],
    )
    reported = compared(chain() + weights(norm=1), ELSEWHERE + weights(norm=2), process=watched(1))
    assert (reported["evidence"], reported["verdict"]) == ("weights", "diverged")


def test_weights_that_differ_lead_and_the_missing_step_is_named() -> None:
    reported = compared(chain() + weights(norm=1), chain() + weights(norm=2), process=watched(1), step="99")
    absent = "step 99 has no fingerprints of api/0 and api/1; api/0 and api/1 have steps 1 to 3"
    assert reported["evidence"] == "weights"
    assert f"outputs unproven: {absent} (--step 3, or leave out --step)" in reported["headlines"]


def test_equal_weights_are_listed_next_to_the_leading_evidence() -> None:
    reported = compared(*[chain() + weights(norm=1)] * 2, process=watched(1))
    assert (reported["evidence"], reported["verdict"]) == ("input", "identical")
    assert reported["others"][-1] == {"evidence": "weights", "verdict": "identical", "compared": 1, "diverged": 0}
    assert compared(chain(), chain())["others"] == []


def test_weights_that_do_not_explain_the_divergence_are_named_too() -> None:
    reported = compared(chain() + weights(embed=1, norm=1), chain(NORM) + weights(embed=2, norm=1), process=watched(2))
    assert (reported["evidence"], reported["verdict"], reported["first"]["kernel"]) == ("input", "diverged", "norm")
    assert reported["first"]["weights"] == []
    assert reported["headlines"][-1] == "weights differ, too: embed in api/0 and api/1 (--by weights)"
    both = compared(chain() + weights(embed=1, norm=1), chain(NORM) + weights(embed=2, norm=2), process=watched(2))
    assert [each["name"] for each in both["first"]["weights"]] == ["norm"]
    assert both["headlines"][-1] == "other weights differ, too: embed in api/0 and api/1 (--by weights)"


def test_differing_weights_are_named_with_any_evidence() -> None:
    sides = chain() + weights(embed=1, norm=1), chain() + weights(embed=2, norm=2)
    reported = compared(*sides, process=watched(2), by="run")
    assert (reported["evidence"], reported["verdict"]) == ("run", "identical")
    assert (
        reported["headlines"][-1] == "weights differ, too: embed in api/0 and api/1, and 1 more tensor (--by weights)"
    )
    assert reported["others"][-1]["verdict"] == "diverged"


# ---- in a recording

RESCANS = f"""
from array import array
def scans(): return int.from_bytes(os.pread(_core._segment_fd(), 8, {SCANS}), "little")
weights = {{"v": array("f", [3]), "w": array("f", [1, 2])}}
brick.weights(weights, rescan_s=1e-9, share=1.0)
pause()
brick.checksum("k", b"before")
pause()
weights["w"][1] = 7
before = scans()
while scans() == before:
    with brick.step(None): pass
pause()
brick.checksum("k", b"after")
pause()
weights["w"][1] = 2
before = scans()
while scans() == before:
    with brick.step(None): pass
pause()
"""


def records_in(path: Path) -> list[tuple[int, int]]:
    """Return, for each chunk of records in a recording, its position and the length of its body."""
    return [(at, len(body)) for kind, at, _, body in chunks(path) if kind == _reader.CHUNK_RECORDS]


def rescans(worker: Start, folder: Path, times: int) -> tuple[Path, Path, list[int]]:
    """Make a recording of an idle worker that rescans its weights; return it with the offset of each rescan."""
    base, path = folder / "base.brick", folder / "w.brick"
    one = started(worker, RESCANS, BRICKD_SERVICE="api", BRICKD_WORKER="0")
    written = []
    with running() as daemon:
        daemon.once("/weights", lambda answer: [each["tensors"] for each in answer["workers"]] == [2])
        assert brickd("record", "-o", str(base), "--duration", "0.05").returncode == 0
        with recording("-o", str(path), "--spans") as process:
            (stored,) = runtime().recordings.iterdir()
            for _ in range(times):
                written.append(len(records_in(stored)))
                one.go()
                one.paused()
                until(lambda: len(records_in(stored)) > written[-1])
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0
    return base, path, written


def spoil(path: Path, since: int, until: int | None) -> None:
    """Damage some chunks of records in a recording."""
    damaged = bytearray(path.read_bytes())
    for at, length in records_in(path)[since:until]:
        damaged[at + 64 + length // 2] ^= 1
    path.write_bytes(damaged)


@pytest.mark.ci
@pytest.mark.parametrize("what", ["a rescan", pytest.param("all from a rescan on", marks=pytest.mark.ci)])
def test_a_rescan_partly_lost_in_a_recording_makes_weights_incomplete(
    worker: Start, prefix: str, tmp_path: Path, what: str
) -> None:
    base, path, written = rescans(worker, tmp_path, 3)
    assert document("diff", f"{base}:api/0", f"{path}:api/0", "--by", "weights", code=1)["verdict"] == "diverged"
    spoil(path, written[1], written[2] if what == "a rescan" else None)
    answer = document("diff", f"{base}:api/0", f"{path}:api/0", "--by", "weights")
    assert (answer["verdict"], answer["diverged"], answer["compared"]) == ("incomplete", 0, 2)
    assert answer["incomplete"] > 0


@pytest.mark.ci
def test_weights_fully_reread_after_a_loss_are_complete(worker: Start, prefix: str, tmp_path: Path) -> None:
    base, path, written = rescans(worker, tmp_path, 4)
    spoil(path, written[1], written[2])
    answer = document("diff", f"{base}:api/0", f"{path}:api/0", "--by", "weights")
    assert (answer["verdict"], answer["compared"], answer["incomplete"]) == ("identical", 2, 0)
