"""The digest of a worker's weights: two digests are equal if and only if the workers hold the same tensors."""

from __future__ import annotations

import pytest
from made_up_weights import MadeUpWeights

from brickd.analysis.weights.digests import WeightDigests, digests


def found(of: MadeUpWeights) -> dict[str, str]:
    weights = of.numerics.weights
    names = {worker.reading.uuid: worker.name for worker in of.workers}
    return {names[uuid]: digest for uuid, digest in digests(weights, of.workers).items()}


def replicas(*, key: int = 7) -> MadeUpWeights:
    of = MadeUpWeights()
    for name in ("api/0", "api/1"):
        of.add(name, watched=2, key=key)
    for name, tensors in (("api/0", "ab"), ("api/1", "ba")):
        for tensor in tensors:
            of.add_weight(name, ord(tensor), tensor)
    return of


def test_replicas_have_one_digest_in_whatever_order_their_tensors_came() -> None:
    of = found(replicas())
    assert of["api/0"] == of["api/1"]
    assert len(of["api/0"]) == 16


def test_a_digest_does_not_depend_on_the_service_or_the_process() -> None:
    of = replicas()
    of.add("batch/0", service="batch", watched=2)
    for tensor in "ba":
        of.add_weight("batch/0", ord(tensor), tensor)
    assert len(set(found(of).values())) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"checksum": 9, "tensor": "a"},
        {"checksum": ord("c"), "tensor": "c"},
        {"checksum": ord("a"), "tensor": "a", "layer": 1},
        {"checksum": ord("a"), "tensor": "a", "expert": 1},
    ],
)
def test_another_content_name_layer_or_expert_has_another_digest(change: dict[str, int]) -> None:
    of = replicas()
    of.add("api/2", watched=2)
    of.add_weight("api/2", **change)  # type: ignore[arg-type]
    of.add_weight("api/2", ord("b"), "b")
    names = found(of)
    assert names["api/2"] not in (names["api/0"], names["api/1"])


def test_another_key_has_another_digest() -> None:
    assert found(replicas(key=7))["api/0"] != found(replicas(key=8))["api/0"]


def test_a_worker_that_has_not_read_all_has_none() -> None:
    of = replicas()
    of.add("api/2", watched=2)
    of.add_weight("api/2", ord("a"), "a")
    of.add("api/3", watched=1, scans=0)
    of.add_weight("api/3", ord("a"), "a")
    of.add("api/4", watched=1)
    assert found(of).keys() == {"api/0", "api/1"}


def test_tensors_that_cannot_be_read_do_not_stop_it() -> None:
    of = replicas()
    of.add("api/2", watched=2, refused=1)
    of.add_weight("api/2", ord("a"), "a")
    assert found(of)["api/2"] != found(of)["api/0"]


def test_it_is_computed_anew_after_a_change_only() -> None:
    of = replicas()
    kept = WeightDigests(of.numerics.weights)
    before = kept.of(of.workers)
    assert kept.of(of.workers) is before
    of.add_weight("api/0", 5, "a")
    after = kept.of(of.workers)
    uuids = [worker.reading.uuid for worker in of.workers]
    assert [after[uuid] == before[uuid] for uuid in uuids] == [False, True]


def test_equal_contents_under_other_names_in_another_service_have_another_digest() -> None:
    of = replicas()
    of.add("batch/0", service="batch", watched=2)
    of.add_weight("batch/0", ord("a"), "x")
    of.add_weight("batch/0", ord("b"), "y")
    assert found(of)["batch/0"] != found(of)["api/0"]


def test_a_worker_with_lost_records_or_a_dead_one_has_none() -> None:
    of = replicas()
    of.add("api/2", watched=1, alive=False)
    of.add_weight("api/2", ord("a"), "a")
    weights, uuids = of.numerics.weights, [worker.reading.uuid for worker in of.workers]
    assert WeightDigests(weights).of(of.workers).keys() == set(uuids[:2])
    weights.lose(uuids[0], 1)
    assert WeightDigests(weights).of(of.workers).keys() == {uuids[1]}
