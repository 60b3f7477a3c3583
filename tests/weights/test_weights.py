"""The daemon keeps and compares the weights of many workers."""

from __future__ import annotations

import random
import sys
from array import array
from typing import Any

import dtypes
import numpy as np
import pytest
from checked_record import CheckedRecord
from checked_record import Tensor as Sums
from hypothesis import given
from hypothesis import strategies as st
from made_up_weights import NOW, SECOND, MadeUpWeights, several

from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.weights.contents import COST_BYTES
from brickd.analysis.weights.headlines import headlines
from brickd.analysis.weights.replicas import judge
from brickd.analysis.weights.scan_times import PERIOD_MAX_NS
from brickd.analysis.weights.shards import shard_of
from brickd.analysis.weights.store import Weights
from brickd.analysis.weights.tensors import TENSORS_MAX, Tensor
from brickd.analysis.weights.verdicts import WeightsVerdict
from brickd.analysis.weights.worker_tensors import ROW_BYTES, Holds
from brickd.shm import _reader
from brickd.shm.sites import Site, Sites, WorkerNames

THREE = ("api/0", "api/1", "api/2")


def states(judged: WeightsVerdict) -> dict[str, str]:
    return {worker.name: worker.state for worker in judged.workers}


def odd(judged: WeightsVerdict) -> list[tuple[str, int, str, list[str]]]:
    """Return name, layer, reason and workers of the tensors that differ."""
    return [
        (row.tensor.name, row.tensor.layer, row.why, [each.worker for each in row.outliers]) for row in judged.differing
    ]


def add_to_all(weighed: MadeUpWeights, names: tuple[str, ...] = THREE, tensors: int = 4, base: int = 100) -> None:
    for name in names:
        for layer in range(tensors):
            weighed.add_weight(name, base + layer, "w", layer)


def test_replicas_with_the_same_tensors_are_equal() -> None:
    weighed = several(*THREE, watched=4)
    add_to_all(weighed)
    judged = weighed.judged()
    assert (judged.verdict, judged.equal, judged.compared, judged.tensors) == ("equal", 3, 4, 4)
    assert judged.age_ns == NOW - SECOND


def test_the_majority_names_the_worker_and_the_tensor() -> None:
    weighed = several(*THREE, watched=5)
    add_to_all(weighed)
    sketch = (1.0,) * 16
    for name, of in zip(THREE, (1.0, 1.0, 1.5), strict=True):
        weighed.add_weight(name, Sums(int(of * 2), l2=8.0, sketch=tuple(of * each for each in sketch)), "down", 17)
    judged = weighed.judged()
    assert odd(judged) == [("down", 17, "outlier", ["api/2"])]
    (row,) = judged.differing
    assert (row.agree, row.outliers[0].error, row.outliers[0].changed) == (("api/0", "api/1"), 0.25, False)
    assert states(judged) == {"api/0": "equal", "api/1": "equal", "api/2": "differs"}
    ((found, text, rows),) = headlines(judged)
    assert (found.name, text) == ("api/2", "api/2 differs in down, layer 17, 1 of 5 tensors: relative error 0.25")
    assert rows == [row]
    assert judged.later(5).age_ns == NOW - SECOND + 5


def test_two_workers_disagree() -> None:
    weighed = several("api/0", "api/1")
    weighed.add_weight("api/0", 1)
    weighed.add_weight("api/1", 2)
    judged = weighed.judged()
    assert odd(judged) == [("w", -1, "disagree", ["api/1"])]
    assert states(judged) == {"api/0": "disagrees", "api/1": "disagrees"}
    assert [text for _, text, _ in headlines(judged)] == ["api/0 and api/1 disagree in w, 1 of 1 tensor"]


def test_every_disagreeing_worker_is_in_a_headline() -> None:
    weighed = several(*THREE)
    for tensor, names in (("a", THREE[:2]), ("b", THREE[1:]), ("c", THREE[:2])):
        for checksum, name in enumerate(names):
            weighed.add_weight(name, checksum, tensor)
    assert [(found.name, text, len(rows)) for found, text, rows in headlines(weighed.judged())] == [
        ("api/0", "api/0 and api/1 disagree in 2 of 3 tensors, first in a", 2),
        ("api/2", "api/1 and api/2 disagree in b, 1 of 3 tensors", 1),
    ]


def test_four_workers_without_a_majority_disagree() -> None:
    weighed = several(*THREE, "api/3")
    for name, checksum in zip((*THREE, "api/3"), (1, 1, 2, 2), strict=True):
        weighed.add_weight(name, checksum)
    assert odd(weighed.judged()) == [("w", -1, "disagree", ["api/2", "api/3"])]


def test_of_two_workers_the_one_that_changed_in_place_is_named() -> None:
    weighed = several("api/0", "api/1")
    for name, checksum in (("api/0", 1), ("api/1", 1), ("api/0", 2)):
        weighed.add_weight(name, checksum)
    judged = weighed.judged()
    assert odd(judged) == [("w", -1, "changed", ["api/0"])]
    assert judged.differing[0].agree == ("api/1",)
    assert states(judged) == {"api/0": "differs", "api/1": "equal"}


def test_a_single_worker_is_compared_with_its_earlier_weights() -> None:
    weighed = several("api/0")
    weighed.add_weight("api/0", 1)
    assert weighed.judged().verdict == "nothing"
    assert weighed.judged().workers[0].reasons == {"alone": 1}
    weighed.add_weight("api/0", 2)
    assert odd(weighed.judged()) == [("w", -1, "changed", ["api/0"])]
    weighed.add_weight("api/0", 1)
    assert weighed.judged().verdict == "nothing"


def test_the_same_change_in_all_workers_is_counted_and_no_damage() -> None:
    weighed = several(*THREE)
    for checksum in (1, 2):
        for name in THREE:
            weighed.add_weight(name, checksum)
    judged = weighed.judged()
    assert (judged.verdict, judged.alike, [each.changed for each in judged.workers]) == ("equal", 1, [1, 1, 1])


def test_a_restarted_worker_with_the_weights_of_the_others_is_equal() -> None:
    """After a restart, the generations of a worker begin at one again. If weights of different generations differ,
    brickd reports no difference.
    """
    weighed = several("api/0", "api/1", "api/2")
    for name, generation in (("api/0", 2), ("api/1", 2), ("api/2", 1)):
        weighed.add_weight(name, 9, "w", 0, generation=generation)
        weighed.add_weight(name, 100 + (generation == 1), "v", 0, generation=generation)
    judged = weighed.judged()
    assert (judged.verdict, judged.differing) == ("equal", ())
    restarted = judged.workers[2]
    assert (restarted.compared, restarted.reasons) == (1, {"generation": 1})


def test_weights_of_another_generation_are_not_yet_comparable() -> None:
    weighed = several(*THREE)
    add_to_all(weighed, tensors=2)
    weighed.add_weight("api/2", 7, "w", 0, generation=2)
    judged = weighed.judged()
    assert (judged.verdict, odd(judged)) == ("equal", [])
    assert judged.workers[2].reasons == {"generation": 1}
    assert (judged.workers[2].generation, judged.workers[2].changed) == (2, 0)
    for name in THREE[:2]:
        weighed.add_weight(name, 8, "w", 0, generation=2)
    assert odd(weighed.judged()) == [("w", 0, "outlier", ["api/2"])]


FORMS = [
    (Sums(2, dtype=10), 0.0, "float16 and not float32, relative error <1e-6"),
    (Sums(2, dtype=10, shape=9), None, "float16 and not float32"),
    (Sums(2, shape=9), None, "has another shape"),
    (Sums(2, shape=9, nan=3), None, "has another shape, contains 3 NaN"),
]


@pytest.mark.parametrize(("other", "error", "how"), FORMS)
def test_a_tensor_of_another_dtype_or_shape_differs(other: Sums, error: float | None, how: str) -> None:
    weighed = several(*THREE)
    for name, reported in zip(THREE, (Sums(1), Sums(1), other), strict=True):
        weighed.add_weight(name, 7, "a")
        weighed.add_weight(name, reported)
    judged = weighed.judged()
    assert states(judged) == {"api/0": "equal", "api/1": "equal", "api/2": "differs"}
    assert (judged.verdict, judged.compared, judged.workers[2].reasons) == ("differ", 2, {})
    assert judged.differing[0].outliers[0].error == error
    assert [text for _, text, _ in headlines(judged)] == [f"api/2 differs in w, 1 of 2 tensors: {how}"]


def test_disagreeing_forms_of_a_tensor_are_reported() -> None:
    weighed = several("api/0", "api/1")
    weighed.add_weight("api/0", 1)
    weighed.add_weight("api/1", Sums(2, dtype=10))
    assert [text for _, text, _ in headlines(weighed.judged())] == [
        "api/0 and api/1 disagree in w, 1 of 1 tensor (api/1: float16 and not float32)"
    ]


def test_shards_and_services_are_compared_within_themselves() -> None:
    names = ("api/0.tp0", "api/0.tp1", "api/1.tp0", "api/1.tp1")
    weighed = several(*names)
    weighed.add("other/0", service="other")
    for name in names:
        add_to_all(weighed, (name,), base=1000 if name.endswith("tp1") else 2000)
    weighed.add_weight("other/0", 5, "w", 0)
    found = judge(weighed.numerics.weights, weighed.workers)
    assert [(each.service, each.verdict, each.equal) for each in found] == [
        ("api", "equal", 4),
        ("other", "nothing", 0),
    ]


def test_workers_of_another_key_are_not_compared() -> None:
    weighed = several("api/0", "api/1")
    weighed.add("api/2", key=8)
    for number, name in enumerate(THREE):
        weighed.add_weight(name, 1 + number // 2)
    judged = weighed.judged()
    assert (judged.verdict, judged.equal, judged.workers[2].reasons) == ("equal", 2, {"key": 1})


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_worker_with_the_weights_of_another_shard_is_found(replicas: int) -> None:
    names = [f"api/{replica}.tp{rank}" for replica in range(replicas) for rank in range(2)]
    weighed = several(*names)
    for name in names:
        rank = 1 if name == "api/0.tp0" else int(name[-1])
        add_to_all(weighed, (name,), base=1000 * (rank + 1))
        weighed.add_weight(name, 5, "norm")  # all shards have the same norm
    judged = weighed.judged()
    assert [worker.name for worker in judged.unequal] == ["api/0.tp0"]
    assert judged.unequal[0].holds == "tp1"
    assert {row.why for row in judged.differing} == {"outlier"}
    assert judged.workers[0].differing == 4


def test_a_worker_with_the_tensors_of_another_stage_is_found() -> None:
    names = [f"api/{replica}.pp{rank}" for replica in range(3) for rank in range(2)]
    weighed = several(*names, watched=1)
    for name in names:
        rank = 1 if name == "api/0.pp0" else int(name[-1])
        weighed.add_weight(name, 10 + rank, "w", layer=rank)
    judged = weighed.judged()
    assert [(worker.name, worker.holds) for worker in judged.unequal] == [("api/0.pp0", "pp1")]


def test_damage_is_not_taken_for_another_shard() -> None:
    names = [f"api/{replica}.tp{rank}" for replica in range(3) for rank in range(2)]
    weighed = several(*names)
    for name in names:
        add_to_all(weighed, (name,), base=1000 * (int(name[-1]) + 1))
    for layer in range(4):
        weighed.add_weight("api/0.tp0", 9000 + layer, "w", layer)
    assert [(worker.name, worker.holds) for worker in weighed.judged().unequal] == [("api/0.tp0", None)]


# ---- workers with a wrong shard

SHARDED = tuple(f"api/{replica}.tp{rank}" for replica in range(3) for rank in range(2))


def add_as(weighed: MadeUpWeights, name: str, rank: int, tensors: int = 4) -> None:
    """Add the tensors of a worker of this rank: some that only it has, and one that all workers have."""
    add_to_all(weighed, (name,), tensors, base=1000 * (rank + 1))
    weighed.add_weight(name, 5, "norm")


def sharded(*more: str) -> MadeUpWeights:
    """Return three replicas with two shards each, and other workers without a shard."""
    weighed = several(*SHARDED, *more)
    for name in SHARDED:
        add_as(weighed, name, int(name[-1]))
    return weighed


def test_a_worker_claiming_the_place_of_another_is_named_alone() -> None:
    weighed = sharded("api/2.tp0#2")
    weighed.place("api/2.tp0#2", "2.tp0")
    add_as(weighed, "api/2.tp0#2", 1)
    judged = weighed.judged()
    assert [(worker.name, worker.holds) for worker in judged.unequal] == [("api/2.tp0#2", "tp1")]
    assert judged.equal == len(SHARDED)


def test_two_workers_with_one_place_and_its_weights_are_replicas() -> None:
    weighed = sharded("api/2.tp0#2")
    weighed.place("api/2.tp0#2", "2.tp0")
    add_as(weighed, "api/2.tp0#2", 0)
    assert weighed.judged().equal == len(SHARDED) + 1


@pytest.mark.parametrize("place", ["0.tp7", "0.tp0.pp3", "tp0.tp0", "0.tp1e9", "9" * 60])
def test_a_worker_claiming_a_nonexistent_place_is_not_compared(place: str) -> None:
    weighed = sharded("api/liar")
    weighed.place("api/liar", place)
    add_as(weighed, "api/liar", 1)
    judged = weighed.judged()
    assert (judged.verdict, judged.equal) == ("equal", len(SHARDED))
    claimant = judged.workers[-1]
    assert (claimant.state, dict(claimant.reasons)) == ("not comparable", {"alone": 5})


def test_the_place_of_a_worker_is_its_latest_claim() -> None:
    weighed = sharded()
    for place, names in (("0.tp1", ["api/0.tp0"]), ("0.tp9", []), ("0.tp0", [])):
        weighed.place("api/0.tp0", place)
        assert [worker.name for worker in weighed.judged().unequal] == names


def test_two_disagreeing_workers_of_similar_shards_keep_their_places() -> None:
    names = [f"api/{replica}.ep{rank}" for replica in range(2) for rank in range(2)]
    weighed = several(*names)
    add_to_all(weighed, tuple(names))
    weighed.add_weight("api/0.ep0", 9, "w", 0, generation=2)
    weighed.add_weight("api/1.ep0", 100, "w", 0, generation=2)
    judged = weighed.judged()
    assert states(judged) == {
        "api/0.ep0": "disagrees",
        "api/1.ep0": "disagrees",
        "api/0.ep1": "equal",
        "api/1.ep1": "equal",
    }
    assert [worker.holds for worker in judged.workers] == [None] * 4


def test_a_shard_is_its_coordinates_without_the_replica() -> None:
    reported = ("0.tp3.pp1", "0.pp1.tp3", "tp3.pp1", "dp0.pp1.tp3", "7", "blue", "", "decode0.tp1", "0.dp1")
    assert [shard_of(each) for each in reported] == [*["pp1.tp3"] * 4, "", "", "", "tp1", ""]
    alike = ("0.cp1.tp2", "sp0.tp2", "cp1.sp0.tp2.dp3", "cp3", "0.sp1")
    assert [shard_of(each) for each in alike] == [*["tp2"] * 3, "", ""]


@pytest.mark.parametrize("rank", ["cp", "sp"])
def test_context_and_sequence_ranks_have_equal_weights_and_are_compared(rank: str) -> None:
    names = tuple(f"api/{replica}.{rank}{number}" for replica in range(2) for number in range(2))
    weighed = several(*names)
    add_to_all(weighed, names)
    weighed.add_weight(names[2], 9, "w", 0, generation=2)
    for name in (*names[:2], names[3]):
        weighed.add_weight(name, 100, "w", 0, generation=2)
    assert odd(weighed.judged()) == [("w", 0, "outlier", [names[2]])]


def test_missing_tensors_are_reported_once_a_worker_has_read_everything() -> None:
    weighed = several("api/0", "api/1", watched=4)
    add_to_all(weighed, ("api/0",))
    weighed.add("api/2", watched=3, scans=0)
    add_to_all(weighed, ("api/1",), tensors=3)
    add_to_all(weighed, ("api/2",), tensors=3)
    judged = weighed.judged()
    assert [(each.known, each.watched, each.missing) for each in judged.workers] == [(4, 4, 0), (3, 4, 0), (3, 3, 0)]
    assert judged.workers[0].reasons == {"missing": 1}
    weighed.workers[2].reading.process["scans"] = 1
    judged = weighed.judged()
    assert [(each.missing, each.state) for each in judged.workers] == [
        (0, "disagrees"),
        (0, "equal"),  # the worker may still read its other tensors
        (1, "disagrees"),
    ]
    assert judged.workers[0].reasons == {}


def lacking(*watched: int) -> MadeUpWeights:
    """Return a worker for each of these numbers. It watches this number of tensors, and has read all of them. All
    workers have their first tensors in common.
    """
    weighed = MadeUpWeights()
    for number, count in enumerate(watched):
        add_to_all(weighed, (weighed.add(f"api/{number}", watched=count),), count)
    return weighed


@pytest.mark.parametrize(
    ("watched", "odd_ones", "text"),
    [
        ((4, 4, 3), ["api/2"], "api/2 differs in w, layer 3, 1 of 4 tensors: lacks it"),
        ((4, 4, 5), ["api/2"], "api/2 differs in w, layer 4, 1 of 5 tensors: missing in the others"),
        ((4, 3), ["api/0", "api/1"], "api/0 and api/1 disagree in w, layer 3, 1 of 4 tensors (api/1: lacks it)"),
        (
            (4, 4, 3, 3),
            ["api/0", "api/1", "api/2", "api/3"],
            "api/0 and api/1 and api/2 and api/3 disagree in w, layer 3, 1 of 4 tensors (api/2: lacks it)",
        ),
    ],
)
def test_a_fully_read_worker_without_a_tensor_differs(watched: tuple[int, ...], odd_ones: list[str], text: str) -> None:
    judged = lacking(*watched).judged()
    assert (judged.verdict, [worker.name for worker in judged.unequal]) == ("differ", odd_ones)
    assert [reported.text for reported in headlines(judged)] == [text]
    (row,) = judged.differing
    assert row.lacking == watched.count(min(watched))


def test_a_worker_without_a_tensor_has_no_vote_on_it() -> None:
    weighed = lacking(2, 2, 2, 1)
    weighed.add_weight("api/2", 9, "w", 1)
    judged = weighed.judged()
    assert odd(judged) == [("w", 1, "outlier", ["api/2", "api/3"])]
    assert (judged.differing[0].agree, judged.differing[0].lacking) == (("api/0", "api/1"), 1)


def test_no_worker_misses_a_tensor_of_another_or_partly_read_generation() -> None:
    weighed = lacking(4, 4, 3)
    for layer in range(3):
        assert [worker.missing for worker in weighed.judged().workers] == [0, 0, layer == 0]
        weighed.add_weight("api/2", 200 + layer, "w", layer, generation=2)
    judged = weighed.judged()
    assert ([worker.missing for worker in judged.workers], judged.differing) == ([0, 0, 0], ())
    assert judged.workers[2].reasons == {"generation": 3}


def test_tensors_removed_from_a_model_are_left_out() -> None:
    weighed = several(*THREE, watched=4)
    add_to_all(weighed)
    weighed.workers[0].reading.process["weights"] = 3
    for layer in (0, 1, 3):
        weighed.add_weight("api/0", 100 + layer, "w", layer)
    judged = weighed.judged()
    assert (judged.workers[0].known, judged.workers[0].missing) == (3, 1)


def test_living_workers_are_compared_and_dead_ones_if_none_lives() -> None:
    weighed = several(*THREE)
    weighed.add("api/3", alive=False)
    add_to_all(weighed)
    weighed.add_weight("api/3", 1, "w", 0)
    assert (weighed.judged().verdict, len(weighed.judged().workers)) == ("equal", 3)
    weighed = several(*THREE, alive=False)
    add_to_all(weighed)
    weighed.add_weight("api/0", 1, "w", 0)
    judged = weighed.judged()
    assert (judged.verdict, judged.age_ns) == ("differ", None)


def test_experts_of_one_name_are_separate_tensors() -> None:
    weighed = several(*THREE)
    for name in THREE:
        for expert in range(3):
            weighed.add_weight(name, 50 + expert + (name == "api/1" and expert == 2), "experts.*.up", 0, expert)
    (row,) = weighed.judged().differing
    assert (row.tensor, [each.worker for each in row.outliers]) == (Tensor("experts.*.up", 0, 2), ["api/1"])


def test_nan_is_reported_without_an_error() -> None:
    weighed = several(*THREE)
    for name, reported in zip(THREE, (Sums(1), Sums(1), Sums(2, nan=3)), strict=True):
        weighed.add_weight(name, reported)
    judged = weighed.judged()
    assert (judged.workers[2].nan, judged.workers[0].nan) == (1, 0)
    assert judged.differing[0].outliers[0].error is None


def test_tensors_with_nan_or_infinities_are_counted_once_each() -> None:
    weighed = several(*THREE)
    odd: tuple[dict[str, Any], ...] = (
        {"nan": 3},
        {"pos_inf": 2},
        {"neg_inf": 2},
        {"pos_inf": 1, "neg_inf": 1},
        {"nan": 1, "pos_inf": 1},
        {},
    )
    for layer, values in enumerate(odd):
        for name in THREE:
            weighed.add_weight(name, Sums(layer, **values) if name == "api/2" else 100 + layer, "w", layer)
    assert [(each.nan, each.inf) for each in weighed.judged().workers] == [(0, 0), (0, 0), (2, 4)]


def test_workers_without_known_weights_are_not_compared() -> None:
    weighed = several(*THREE)
    assert weighed.judged().verdict == "nothing"
    weighed.add_weight("api/0", 1)
    assert weighed.judged().verdict == "nothing"
    assert states(weighed.judged()) == {"api/0": "not comparable", "api/1": "unknown", "api/2": "unknown"}


def test_impossible_numbers_are_shown_unchanged() -> None:
    weighed = several(*THREE)
    most, nan = 2**64 - 1, float("nan")
    for name in THREE:
        weighed.add_weight(name, Sums(most, l2=nan, sketch=(float("inf"),) * 16, dtype=200, elements=most))
    weighed.add_weight("api/0", Sums(3, l2=nan, sketch=(nan,) * 16, dtype=200, elements=most), ticks=most)
    judged = weighed.judged()
    assert odd(judged) == [("w", -1, "outlier", ["api/0"])]
    assert judged.differing[0].outliers[0].error is None
    assert judged.age_ns is not None


# ---- kept data


def placed(numbers: list[int], contents: list[int], rows: int, uses: int = 3) -> tuple[int, int, list[int]]:
    """Store two records of tensors, with these indexes and these contents. Return the result."""
    records = of_experts(2)
    wide = [array("Q", [0] * rows) for _ in range(3)]
    narrow = [array("I", [0] * rows) for _ in range(2)]
    generations, ticks, first_ticks = wide
    now, firsts = narrow
    return _reader.weights_put(
        records,
        array("i", numbers),
        array("I", contents),
        array("I", [0] * uses),
        generations,
        ticks,
        now,
        first_ticks,
        firsts,
        array("B", [0] * rows),
    )


def test_invalid_row_and_content_numbers_are_refused() -> None:
    assert placed([0, 1], [1, 2], rows=2) == (2, 0, [])
    assert placed([0, 2], [1, 2], rows=2) == (2, 1, [2])
    assert placed([0, -1], [1, 2], rows=2) == (1, 0, [2])
    assert placed([0, 1], [1, 3], rows=2) == (2, 1, [])
    assert placed([2**31 - 1, -(2**31)], [1, 2], rows=0) == (1, 1, [1, 2])


@pytest.mark.parametrize(("numbers", "contents"), [([0], [1, 2]), ([0, 1], [1]), ([], []), ([0, 1, 2], [1, 2, 2])])
def test_arrays_of_another_length_than_the_records_are_refused(numbers: list[int], contents: list[int]) -> None:
    with pytest.raises(ValueError, match="the arrays do not fit 2 records and 2 rows"):
        placed(numbers, contents, rows=2)


@pytest.mark.parametrize("column", range(6))
def test_a_column_of_another_length_than_the_others_is_refused(column: int) -> None:
    columns = [array(code, [0] * 2) for code in "QQIQIB"]
    columns[column].append(0)
    with pytest.raises(ValueError, match="the arrays do not fit"):
        _reader.weights_put(of_experts(2), array("i", [0, 1]), array("I", [1, 2]), array("I", [0] * 3), *columns)


def test_another_generation_or_content_is_a_change() -> None:
    holds, uses = Holds("api"), array("I", [0] * 3)
    holds.grow(1)

    def changes(generation: int, ticks: int, content: int) -> int:
        record = CheckedRecord(Sums(1), step=generation, ticks=ticks, flags=_reader.CHECKED_WEIGHT).slots()
        return holds.put(record, array("i", [0]), array("I", [content]), uses)[0]

    assert [changes(1, 5, 1), changes(1, 6, 2), changes(1, 7, 2), changes(1, 8, 2)] == [1, 1, 0, 0]
    assert [changes(1, 4, 1), changes(1, 3, 2), changes(1, 2, 2)] == [0, 1, 0], (
        "these readings are older than the first reading"
    )
    assert [changes(2, 9, 2), changes(1, 8, 1)] == [1, 0]


def test_invalid_dictionary_entries_are_refused() -> None:
    record = of_experts(1)
    with pytest.raises(TypeError):
        _reader.weights_of(record, array("Q", [0, 5]), {(5, 0): "x"})  # type: ignore[dict-item]
    of = _reader.weights_of(record + b"cut", array("Q", [0, 5 | _reader.SITE_STATEFUL]), {(5, 0): 7})
    assert array("i", of) == array("i", [7])


@pytest.mark.ci
@given(st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 6))
def test_the_order_of_records_changes_nothing(random: random.Random, workers: int, tensors: int) -> None:
    names = tuple(f"api/{number}" for number in range(workers))
    reported = []
    ticks = 0
    for name in names:
        for layer in range(tensors):
            generation = 1
            for _ in range(random.randrange(4)):
                ticks += 1
                generation += random.random() < 0.3
                reported.append((name, random.choice((1, 1, 1, 2)), layer, generation, ticks))

    def verdict_of(order: list[tuple[str, int, int, int, int]]) -> WeightsVerdict:
        weighed = several(*names, watched=tensors)
        for layer in range(tensors):  # each worker adds the tensors in another order
            weighed.add_weight("api/0", 1, "w", layer, generation=1, ticks=0)
        for name, checksum, layer, generation, at in order:
            weighed.add_weight(name, checksum, "w", layer, generation=generation, ticks=at)
        return weighed.judged()

    shuffled = reported.copy()
    random.shuffle(shuffled)
    assert verdict_of(shuffled) == verdict_of(reported)


@given(st.lists(st.integers(1, 3), min_size=2, max_size=9))
def test_the_outlier_is_a_worker_outside_of_the_majority(checksums: list[int]) -> None:
    names = [f"api/{number}" for number in range(len(checksums))]
    weighed = several(*names)
    for name, checksum in zip(names, checksums, strict=True):
        weighed.add_weight(name, checksum)
    judged = weighed.judged()
    most = max(set(checksums), key=checksums.count)
    if 2 * checksums.count(most) > len(checksums) > 2 or len(set(checksums)) == 1:
        expected = [name for name, checksum in zip(names, checksums, strict=True) if checksum != most]
        assert [worker.name for worker in judged.unequal] == expected
        assert judged.equal == len(names) - len(expected)
    else:
        assert {worker.state for worker in judged.workers} == {"disagrees"}


def test_equal_contents_are_stored_once_until_their_last_worker_leaves() -> None:
    weighed = several(*THREE)
    add_to_all(weighed)
    weights = weighed.numerics.weights
    assert len(weights.contents) == 4
    weighed.add_weight("api/0", 1, "w", 0)
    assert len(weights.contents) == 5
    weighed.add_weight("api/0", 1, "w", 0, generation=2)
    uuids = [worker.reading.uuid for worker in weighed.workers]
    weights.retain(uuids[:1])
    assert (list(weights), len(weights.contents)) == (uuids[:1], 4)
    weights.retain(())
    assert (list(weights), len(weights.contents), weights.tensors("api")) == ([], 0, ())


def test_tensors_beyond_the_memory_limit_are_counted_and_unknown() -> None:
    weighed = MadeUpWeights(bytes_max=4_000)
    weighed.add("api/0")
    for layer in range(100):
        weighed.add_weight("api/0", layer + 1, "w", layer)
    (worker,) = weighed.judged().workers
    assert 0 < worker.known < 12
    assert worker.refused == 100 - worker.known
    weighed.add_weight("api/0", 7_777, "w", 0)  # this record must not be mistaken for the old one
    (after,) = weighed.judged().workers
    assert (after.known, after.refused) == (worker.known - 1, worker.refused + 1)


def test_a_saved_state_beyond_the_memory_limit_is_refused() -> None:
    class Small(Weights):
        def __init__(self) -> None:
            super().__init__(room)

    weighed = several(*THREE)
    add_to_all(weighed)
    contents, _, workers = weighed.numerics.weights.kept()
    kept = contents, {"api": weighed.numerics.weights.tensors("api")}, workers
    room = sum(len(holds) for holds in kept[2].values()) * ROW_BYTES + len(kept[0]) * COST_BYTES
    assert list(Small.of_kept(*kept)) == list(weighed.numerics.weights)
    room -= 1
    with pytest.raises(ValueError, match=f"exceed {room} bytes"):
        Small.of_kept(*kept)


def of_experts(count: int) -> bytes:
    """Return records of different tensors."""
    flags = _reader.CHECKED_WEIGHT | _reader.CHECKED_POSITION
    slots = np.tile(
        np.frombuffer(CheckedRecord(Sums(1), ticks=1, flags=flags).slots(), dtypes.dtype("checked")), (count, 1)
    )
    slots[:, 0]["position"] = np.arange(count)
    slots[:, 2].view(dtypes.dtype("tensor_sums"))["checksum"] = np.arange(1, count + 1)
    return slots.tobytes()


@pytest.mark.ci
def test_the_number_of_tensors_of_a_service_is_bounded() -> None:
    numerics = Numerics()
    producer = numerics.producer("u", "api", lambda: WorkerNames([None, ("w", 0)], [None, (1, 0, 0)]), "")
    producer.receive(of_experts(TENSORS_MAX + 3))
    holds = numerics.weights.of("u")
    assert holds is not None
    assert (len(holds), holds.refused, len(numerics.weights.tensors("api"))) == (TENSORS_MAX, 3, TENSORS_MAX)


@pytest.mark.ci
def test_64_workers_of_1000_tensors_take_a_few_megabytes() -> None:
    numerics = Numerics()
    weights = numerics.weights
    tables = WorkerNames([None, ("w", 0)], [None, (1, 0, 0)])
    reported = of_experts(1000)
    for worker in range(64):
        numerics.producer(f"{worker:032x}", "api", lambda: tables, "").receive(reported)
    columns = [column for uuid in weights for column in weights.of(uuid).columns()]  # type: ignore[union-attr]
    kept = sum(map(sys.getsizeof, columns)) + 1000 * 500
    assert len(weights.contents) == 1000
    assert kept < 4 << 20


def test_a_record_is_resolved_by_the_names_of_its_worker() -> None:
    weighed = several("api/0", "api/1")
    tables = WorkerNames([None, ("v", 0), ("w", 0)], [None, (1, 3, 0), (2, 3, 0)])
    other = weighed.numerics.producer("other", "api", lambda: tables, "")
    weighed.add_weight("api/0", 1, "w", 3)
    weighed.add_weight("api/0", 2, "v", 3)
    for site, checksum in ((1, 2), (2, 1)):
        other.receive(CheckedRecord(Sums(checksum), site=site, ticks=1, flags=_reader.CHECKED_WEIGHT).slots())
    weights = weighed.numerics.weights
    own, others = weights.of(weighed.workers[0].reading.uuid), weights.of("other")
    assert own is not None
    assert others is not None
    assert list(own.now) == list(others.now)
    assert weights.tensors("api") == [Tensor("w", 3, -1), Tensor("v", 3, -1)]


def test_reading_equal_weights_again_is_no_news() -> None:
    weighed = several(*THREE)
    add_to_all(weighed)
    weights = weighed.numerics.weights
    news, changes = weights.news, weights.changes
    add_to_all(weighed)
    assert (weights.news, weights.changes) == (news, changes + 12)
    for checksum, generation in ((9, 1), (9, 2), (100, 2)):
        weighed.add_weight("api/0", checksum, "w", 0, generation=generation)
        assert weights.news > news
        news = weights.news
    weights.retain(())
    assert weights.news > news


@pytest.mark.parametrize("generation", [0, 1])
def test_tensors_of_a_single_worker_are_taken_in_any_order(generation: int) -> None:
    weighed = several("api/0", "api/1")
    for name, tensor, checksum in (("api/0", "a", 1), ("api/0", "b", 2), ("api/1", "b", 2), ("api/1", "a", 9)):
        weighed.add_weight(name, checksum, tensor, generation=generation)
    judged = weighed.judged()
    assert [worker.known for worker in judged.workers] == [2, 2]
    assert odd(judged) == [("a", -1, "disagree", ["api/1"])]


class Known:
    """A worker that counts how often the name of a site is queried."""

    uuid, service = "u", "api"

    def __init__(self, *names: str) -> None:
        self._sites, self.asked = [Site(name, 0, "other") for name in names], 0
        self.digests = array("Q", map(Sites().number, self._sites))

    def known(self, number: int) -> Site:
        self.asked += 1
        return self._sites[number]


def test_the_name_of_a_tensor_is_looked_up_once() -> None:
    names = [f"{kind}.{number}" for kind in ("w", "attn", "kv_cache") for number in range(10)]
    known, weights = Known(*names), Weights()
    for ticks in (1, 2, 3):
        records = [CheckedRecord(Sums(1), site=n, ticks=ticks, flags=_reader.CHECKED_WEIGHT) for n in range(len(names))]
        weights.take(known, b"".join(each.slots() for each in records))
    assert known.asked == len(names)
    assert [tensor.name for tensor in weights.tensors("api")] == names


def test_a_copy_for_a_reader_never_changes() -> None:
    weighed = several(*THREE)
    add_to_all(weighed)
    uuids = [worker.reading.uuid for worker in weighed.workers]
    copy = weighed.numerics.about(uuids[:2]).weights
    weighed.add_weight("api/0", 9, "w", 0)
    weighed.add_weight("api/0", 9, "w", 99)
    (judged,) = judge(copy, weighed.workers[:2])
    assert (judged.verdict, judged.equal, judged.tensors, list(copy)) == ("equal", 2, 4, uuids[:2])


def test_tensors_read_only_at_load_are_counted_up_to_known_ones() -> None:
    weighed = MadeUpWeights()
    for number, once in enumerate((0, 1, 9)):
        weighed.add(f"api/{number}", watched=9, once=once)
        for layer in range(2):
            weighed.add_weight(f"api/{number}", 1, "w", layer, ticks=NOW)
    assert [worker.load_only for worker in weighed.judged().workers] == [0, 1, 2]


def test_unreadable_tensors_never_exceed_unknown_ones() -> None:
    # the worker's count of refused tensors also includes tensors that were refused for checksums
    weighed = several(*THREE, watched=3, refused=9)
    add_to_all(weighed, ("api/0",), tensors=3)
    add_to_all(weighed, ("api/1",), tensors=2)
    assert [(worker.known, worker.unreadable) for worker in weighed.judged().workers] == [(3, 0), (2, 1), (0, 3)]


def test_the_duration_of_a_load_does_not_change_the_planned_scan_period() -> None:
    weighed = several("api/0", watched=2, every=60 * SECOND)
    for tensor, second in (("a", 10), ("b", 40)):
        weighed.add_weight("api/0", 1, tensor, ticks=second * SECOND)
    (worker,) = weighed.judged().workers
    assert (worker.times.interval_ns, worker.times.period_ns) == (0, 60 * SECOND)


@pytest.mark.parametrize(("every_s", "period_s"), [(0, 300), (1, 1), (900, 900)])
def test_a_tensor_not_reread_for_two_periods_counts_as_load_only(every_s: int, period_s: int) -> None:
    weighed = several("api/0", watched=2, every=every_s * SECOND)
    weighed.add_weight("api/0", 1, ticks=NOW)
    (worker,) = weighed.judged().workers
    times, two_ns = worker.times, 2 * period_s * SECOND
    assert times[:4] == (0, 0, every_s * SECOND, 0)
    assert [times.later(by_ns).load_only for by_ns in (0, two_ns, two_ns + 1)] == [0, 0, 1]
    assert times._replace(rescanned_age_ns=None).load_only == 0, "a worker that has ended owes no reading"
    assert times._replace(interval_ns=1_000 * SECOND).period_ns == 1_000 * SECOND
    weighed.add_weight("api/0", 1, ticks=NOW + 1)
    assert weighed.judged().later(two_ns + 1).load_only == 0, "the tensor was read again after the load"
    weighed.add_weight("api/0", 1, generation=2, ticks=NOW + 2)
    weighed.workers[0].reading.process["scans"] = 3
    assert weighed.judged().later(two_ns).load_only == 0
    assert weighed.judged().later(two_ns + 1).load_only == 1, "no scan followed the second load"


def test_load_only_tensors_do_not_affect_the_rescan_age() -> None:
    weighed = several("api/0", "api/1", watched=3, scans=3, once=1)
    for name in ("api/0", "api/1"):
        for tensor, at_s in (("a", (1, 400, 800)), ("packed", (2,)), ("b", (3, 403, 803))):
            for second in at_s:
                weighed.add_weight(name, 1, tensor, ticks=second * SECOND)
    judged = weighed.judged()
    assert (judged.age_ns, judged.rescanned_age_ns, judged.load_only) == (998 * SECOND, 200 * SECOND, 1)
    assert judged.workers[0].times.interval_ns == 401 * SECOND
    weighed.workers[1].reading.lanes.clear()
    assert weighed.judged().rescanned_age_ns == 998 * SECOND, "the worker will read all tensors again"


@pytest.mark.parametrize("planned", [True, False])
def test_load_only_tensors_of_shards_add_up(planned: bool) -> None:
    weighed = MadeUpWeights()
    for name, tensors in (("api/0.pp0", "ab"), ("api/1.pp0", "ab"), ("api/0.pp1", "cd"), ("api/1.pp1", "cd")):
        weighed.add(name, watched=2, once=2 if planned else 0)
        for tensor in tensors:
            weighed.add_weight(name, 1, tensor, ticks=SECOND)
    judged = weighed.judged()
    assert (judged.tensors, judged.compared, judged.load_only) == (4, 4, 4)
    assert [worker.load_only for worker in judged.workers] == [2, 2, 2, 2]
    assert judged.rescanned_age_ns is None


@pytest.mark.parametrize("every_ns", [PERIOD_MAX_NS + 1, 2**64 - 1])
def test_the_scan_period_never_exceeds_the_agents_maximum(every_ns: int) -> None:
    weighed = several("api/0", watched=2, every=every_ns, once=2**64 - 1)
    weighed.add_weight("api/0", 1, "a", ticks=0)
    weighed.add_weight("api/0", 1, "b", ticks=2**64 - 1)
    times = weighed.judged().workers[0].times
    assert (times.period_ns, times.load_only.bit_count()) == (PERIOD_MAX_NS, 2)
    weighed.workers[0].reading.lanes.clear()
    assert weighed.judged().workers[0].times.period_ns == PERIOD_MAX_NS, (
        "the readings of the worker do not show a longer period between scans"
    )


@pytest.mark.parametrize(
    ("scans", "readings", "interval_s"),
    [
        (1, {"a": [10], "b": [13]}, 600),  # the load took 3 s
        (1, {"a": [10, 40], "b": [13]}, 600),  # the second scan has begun, but has not ended
        (2, {"a": [10, 40], "b": [13, 70]}, 60),  # 30 s between two scans, and 30 s for the second scan
        (2, {"a": [10], "b": [13]}, 600),  # both scans were loads
        (2, {"a": [10, 40], "b": [13]}, 30),  # the second scan has not read all tensors
        (4, {"a": [10, 100], "b": [13, 103]}, 31),  # 90 s for three scans of 3 s each
        (0, {"a": [10]}, 0),
    ],
)
def test_the_scan_interval_follows_from_the_times_of_reading(
    scans: int, readings: dict[str, list[int]], interval_s: int
) -> None:
    weighed = several("api/0", watched=2, scans=scans)
    for tensor, at_s in readings.items():
        for second in at_s:
            weighed.add_weight("api/0", 1, tensor, ticks=second * SECOND)
    (worker,) = weighed.judged().workers
    assert worker.times.interval_ns == interval_s * SECOND
