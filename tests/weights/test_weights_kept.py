"""When a daemon ends, the weights that it knows are kept. Differences between weights are reported."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_weights import MadeUpWeights, several

from brickd.analysis.weights.codec import decode, encode
from brickd.analysis.weights.contents import CONTENT_BYTES
from brickd.analysis.weights.monitor import Scales, Weighing
from brickd.analysis.weights.replicas import judge
from brickd.analysis.weights.store import Weights
from brickd.analysis.weights.worker_tensors import Holds
from brickd.base.state_file import framed, unframed
from brickd.base.units import SECOND
from brickd.errors import CheckpointRefused, CheckpointTooNew
from brickd.model.event_log import Log
from brickd.model.survey_snapshot import Snapshot
from brickd.model.workers import Survey

THREE = ("api/0", "api/1", "api/2")


def made() -> MadeUpWeights:
    """Return three workers, one of which has changed weights in place, and a worker of another service."""
    weighed = several(*THREE)
    weighed.add("other/0", service="other")
    for name in (*THREE, "other/0"):
        for layer in range(3):
            weighed.add_weight(name, 10 + layer, "w", layer)
    weighed.add_weight("api/2", 7, "experts.*.w", 1, 5)
    weighed.add_weight("api/1", 99, "w", 1)
    return weighed


def decoded(content: bytes) -> Weights:
    found = decode("p-", content)
    assert found is not None
    return found


def test_saved_weights_are_restored_and_continued() -> None:
    weighed = made()
    weights = weighed.numerics.weights
    weights.of(weighed.workers[0].reading.uuid).refused = 3  # type: ignore[union-attr]
    content = encode("p-", weights)
    back = decoded(content)
    assert judge(back, weighed.workers) == judge(weights, weighed.workers)
    assert encode("p-", back) == content
    assert decode("q-", content) is None
    for name in THREE:
        weighed.add_weight(name, 70, "w", 1)
    assert judge(back, weighed.workers)[0].verdict == "differ"
    uuids = [worker.reading.uuid for worker in weighed.workers]
    back.retain(uuids[3:])
    assert (len(back.contents), len(back.tensors("other")), back.tensors("api")) == (3, 3, ())


def test_contents_without_a_worker_are_not_loaded() -> None:
    content = spoiled(lambda rest: bytes(CONTENT_BYTES) + rest, numbers=lambda numbers: [1_000, *numbers])
    assert len(decoded(content).contents) == len(made().numerics.weights.contents)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 3), st.integers(1, 2)), max_size=30))
def test_any_weights_survive_saving_and_loading(reported: list[tuple[int, int, int, int]]) -> None:
    weighed = several(*THREE)
    for number, checksum, layer, generation in reported:
        weighed.add_weight(THREE[number], checksum, "w", layer, generation=generation)
    weights = weighed.numerics.weights
    back = decoded(encode("p-", weights))
    assert judge(back, weighed.workers) == judge(weights, weighed.workers)
    assert len(back.contents) == len(weights.contents)


def spoiled(behind: Any = lambda rest: rest, **of: Any) -> bytes:
    """Return the bytes of a whole file, with a change in its first line or after it."""
    prefix, line, rest = unframed("weights file", 1, encode("p-", made().numerics.weights)).split(b"\n", 2)
    document = json.loads(line)
    for name, change in of.items():
        document[name] = change(document[name]) if callable(change) else change
    return framed("weights file", 1, [prefix, b"\n", json.dumps(document).encode(), b"\n", behind(rest)])


def first(change: Any) -> Any:
    """Apply a change to the first worker only."""

    def spoil(workers: dict[str, list[Any]]) -> dict[str, list[Any]]:
        uuid = next(iter(workers))
        return workers | {uuid: change(workers[uuid])}

    return spoil


def column(of: int, value: int) -> Any:
    """Return a function that changes one column in the last row of the last worker."""

    def spoil(rest: bytes) -> bytes:
        columns = Holds("other").columns()
        end = len(rest) - 3 * sum(each.itemsize for each in columns[of + 1 :])
        size = columns[of].itemsize
        return rest[: end - size] + value.to_bytes(size, "little") + rest[end:]

    return spoil


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"brickd checkpoint 2 2 0\n{}",
        framed("weights file", 1, [b""]),
        framed("weights file", 1, [b"{"]),
        framed("weights file", 1, [b'"p-"']),
        framed("weights file", 1, [b'"p-"\n[]\n']),
        spoiled(numbers=[1]),
        spoiled(numbers=lambda numbers: [0, *numbers[1:]]),
        spoiled(numbers=lambda numbers: [numbers[1], *numbers[1:]]),
        spoiled(numbers=7),
        spoiled(tensors={"api": [["w", 0, -1]] * 3}),
        spoiled(tensors={"api": [["w", 0, -1]]}),
        spoiled(tensors={"api": [["w", "0", -1]]}),
        spoiled(tensors={"api": [["w", 0, -1]] * 70_000}),
        spoiled(tensors={}),
        spoiled(workers=[]),
        spoiled(workers=first(lambda answer: answer[:-1])),
        spoiled(workers=first(lambda answer: [*answer[:-1], 0])),
        spoiled(workers=first(lambda answer: [*answer[:-1], -1])),
        spoiled(workers=first(lambda answer: [*answer[:-1], 10**12])),
        spoiled(workers=first(lambda answer: [answer[0], "3", *answer[2:]])),
        spoiled(workers=first(lambda answer: [["a"], *answer[1:]])),
        spoiled(workers=first(lambda answer: None)),
        spoiled(workers=first(lambda answer: [7, *answer[1:]])),
        spoiled(workers=first(lambda answer: ["\ud800", *answer[1:]])),
        spoiled(workers=first(lambda answer: [answer[0], -1, *answer[2:]])),
        spoiled(workers=first(lambda answer: [answer[0], 2**64, *answer[2:]])),
        spoiled(workers=first(lambda answer: [answer[0], True, *answer[2:]])),
        spoiled(workers=first(lambda answer: [answer[0], float("nan"), *answer[2:]])),
        spoiled(numbers=lambda numbers: [float("nan"), *numbers[1:]]),
        spoiled(numbers=lambda numbers: [-1, *numbers[1:]]),
        spoiled(tensors=lambda found: {**found, "ipa": [[7, 0, -1]]}),
        spoiled(tensors=lambda found: {**found, "ipa": [["w", 2**31, -1]]}),
        spoiled(tensors=lambda found: {**found, "ipa": [["w", 0, -2]]}),
        spoiled(tensors=lambda found: {**found, "ipa": [["w", 0, float("inf")]]}),
        framed("weights file", 1, [b'"p-"\n', b"[" * 100_000]),
        framed("weights file", 1, [b'7\n{"numbers":[],"tensors":{},"workers":{}}\n']),
        spoiled(lambda rest: rest[:-1]),
        spoiled(lambda rest: rest + b"?"),
        spoiled(lambda rest: rest[:-4] + b"\xff" * 4),
        spoiled(lambda rest: b""),
        spoiled(column(2, 0)),  # only the first content of a tensor is known
        spoiled(column(4, 0)),  # only the present content of a tensor is known
    ],
)
def test_an_inconsistent_file_is_refused(content: bytes) -> None:
    with pytest.raises(CheckpointRefused):
        decode("p-", content)


def test_impossible_loss_counts_survive_saving_and_loading() -> None:
    weights = made().numerics.weights
    uuid = next(iter(weights))
    for _ in range(2):
        weights.lose(uuid, 2**64 - 1)
    found = decoded(encode("p-", weights)).of(uuid)
    assert found is not None
    assert found.refused == 2**64 - 1


def test_a_file_of_a_later_version_is_refused() -> None:
    with pytest.raises(CheckpointTooNew, match="has version 2, this brickd reads version 1"):
        decode("p-", framed("weights file", 2, [b"{}"]))


@given(st.data())
def test_a_truncated_or_changed_file_is_refused(data: st.DataObject) -> None:
    content = bytearray(encode("p-", made().numerics.weights))
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        del content[at:]
    with pytest.raises(CheckpointRefused):
        decode("p-", bytes(content))


# ---- events


class KeptLog:
    """Workers, and a log of the events about them."""

    def __init__(self) -> None:
        self.weighed, self.log = several(*THREE, watched=1), Log()
        self._scales = Scales(Weighing(self.weighed.numerics.weights), self.log.add)
        self._looks = 0

    def logged(self) -> list[tuple[str, str | None, str, str | None]]:
        """Return the new events after a comparison."""
        newest = self.log.since(0).newest
        self._looks += 1
        self._scales.take(Snapshot(self._looks * SECOND, 0, Survey(self.weighed.workers, [])))
        return [(each.kind, each.worker, each.text, each.command) for each in self.log.since(newest).events]


def test_a_differing_worker_is_reported_once_and_once_when_equal_again() -> None:
    weighing = KeptLog()
    assert weighing.logged() == []
    for name in THREE:
        weighing.weighed.add_weight(name, 1, "mlp.*.down", 17)
    assert weighing.logged() == []
    weighing.weighed.add_weight("api/1", 2, "mlp.*.down", 17)
    reported = "api/1 differs in mlp.17.down, 1 of 1 tensor: relative error <1e-6, changed in place"
    assert weighing.logged() == [("weights_differ", "api/1", reported, "brickd weights api")]
    assert weighing.logged() == []
    weighing.weighed.add_weight("api/1", 3, "mlp.*.down", 17)
    assert weighing.logged() == []
    weighing.weighed.add_weight("api/1", 1, "mlp.*.down", 17)
    reported = "api/1: its weights are equal to its replicas' again (1 tensor compared)"
    assert weighing.logged() == [("weights_equal", "api/1", reported, "brickd weights api")]


@pytest.mark.parametrize("gone", [("api/1",), THREE])
def test_stopping_a_differing_worker_is_not_a_recovery(gone: tuple[str, ...]) -> None:
    weighing = KeptLog()
    for checksum, name in ((1, "api/0"), (2, "api/1"), (1, "api/2")):
        weighing.weighed.add_weight(name, checksum)
    assert [each[:2] for each in weighing.logged()] == [("weights_differ", "api/1")]
    workers = weighing.weighed.workers
    workers[:] = [
        each._replace(reading=replace(each.reading, pid=None)) if each.name in gone else each for each in workers
    ]
    assert weighing.logged() == []
    assert weighing.logged() == []


def test_disagreeing_workers_are_reported_in_one_event() -> None:
    weighing = KeptLog()
    weighing.weighed.add_weight("api/0", 1)
    weighing.weighed.add_weight("api/2", 2)
    assert weighing.logged() == [
        ("weights_differ", "api/0", "api/0 and api/2 disagree in w, 1 of 1 tensor", "brickd weights api"),
    ]


def test_every_disagreeing_worker_is_reported_once() -> None:
    weighing = KeptLog()
    for worker in weighing.weighed.workers:
        worker.reading.process["weights"] = 2
    for tensor, names in (("a", THREE[:2]), ("b", THREE[1:])):
        for checksum, name in enumerate(names):
            weighing.weighed.add_weight(name, checksum, tensor)
    assert [each[1:3] for each in weighing.logged()] == [
        ("api/0", "api/0 and api/1 disagree in a, 1 of 2 tensors"),
        ("api/2", "api/1 and api/2 disagree in b, 1 of 2 tensors"),
    ]


def test_a_disagreement_outlives_its_majority_without_a_wrong_event() -> None:
    weighing = KeptLog()
    for checksum, name in ((1, "api/0"), (1, "api/1"), (2, "api/2")):
        weighing.weighed.add_weight(name, checksum)
    assert [each[:2] for each in weighing.logged()] == [("weights_differ", "api/2")]
    workers = weighing.weighed.workers
    workers[0] = workers[0]._replace(reading=replace(workers[0].reading, pid=None))
    assert [each[:2] for each in weighing.logged()] == [("weights_differ", "api/1")]
    weighing.weighed.add_weight("api/2", 1)
    equal = {("weights_equal", "api/1"), ("weights_equal", "api/2")}
    assert {each[:2] for each in weighing.logged()} == equal


def test_a_look_without_new_records_compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    weighing = KeptLog()
    weighing.weighed.add_weight("api/0", 1)
    weighing.logged()
    monkeypatch.setattr("brickd.analysis.weights.monitor.judge", None)
    assert weighing.logged() == []
