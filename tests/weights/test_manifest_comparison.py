"""The comparison of workers with a manifest: what is compared, what is not compared and why, and the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from brickd.analysis.weights.manifest import ExpectedContent, Manifest, TensorKey
from brickd.analysis.weights.manifest_check import against
from brickd.errors import BrickdError

KEY, OTHER_KEY = "key-1", "key-2"
RIGHT, WRONG = f"{1:016x}", f"{2:016x}"


def manifest(*names: str, shard: str = "", key: str | None = KEY) -> Manifest:
    return Manifest(
        key, "api", {TensorKey(shard, name, None, None): ExpectedContent("float32", (8,), RIGHT) for name in names}
    )


def held(name: str, *workers: str, checksum: str = RIGHT, shard: str = "", **more: Any) -> dict[str, Any]:
    """Return a tensor that these workers hold."""
    usual = {"layer": None, "expert": None, "generation": 1, "dtype": "float32", "shape": [8]}
    return {"shard": shard, "tensor": name, "checksum": checksum, "workers": list(workers), **usual, **more}


def worker(name: str, tensors: int, watched: int | None = None, **more: Any) -> dict[str, Any]:
    """Return a worker with this number of known tensors, and the number of tensors that it watches."""
    usual = {"service": "api", "shard": "", "key": KEY}
    return {
        "worker": name,
        "tensors": tensors,
        "tensors_watched": tensors if watched is None else watched,
        **usual,
        **more,
    }


def document(workers: list[dict[str, Any]], *tensors: dict[str, Any]) -> dict[str, Any]:
    services = [{"service": service} for service in dict.fromkeys(each["service"] for each in workers)]
    return {"workers": workers, "tensors": list(tensors), "services": services}


def states(found: dict[str, Any]) -> list[tuple[str, int, int, int, dict[str, int]]]:
    keys = ("state", "compared", "differing", "missing", "not_comparable")
    return [tuple(each[key] for key in keys) for each in found["workers"]]


def test_a_worker_is_equal_if_it_has_every_checksum_of_the_manifest() -> None:
    workers = [worker("api/0", 2), worker("api/1", 2)]
    tensors = (held("a", "api/0", "api/1"), held("b", "api/0"), held("b", "api/1", checksum=WRONG))
    found = against(manifest("a", "b"), document(workers, *tensors))
    assert states(found) == [("equal", 2, 0, 0, {}), ("differs", 2, 1, 0, {})]
    assert (found["verdict"], found["headlines"]) == (
        "differ",
        ["api/1 differs from the manifest in b, 1 of 2 tensors"],
    )
    assert (found["differing_count"], found["manifest"]) == (1, {"service": "api", "key": KEY, "tensors": 2})
    (row,) = found["differing"]
    assert (row["worker"], row["tensor"], row["checksum"], row["checksum_against"]) == ("api/1", "b", WRONG, RIGHT)
    assert found["services"] == [{"service": "api", "verdict": "differ", "equal": 1, "compared": 2}]


@pytest.mark.parametrize("otherwise", [{"checksum": WRONG}, {"dtype": "float16"}, {"shape": [4, 2]}, {"shape": [9]}])
def test_another_checksum_dtype_or_shape_is_a_difference(otherwise: dict[str, Any]) -> None:
    found = against(manifest("a"), document([worker("api/0", 1)], held("a", "api/0", **otherwise)))
    assert states(found) == [("differs", 1, 1, 0, {})]


@pytest.mark.parametrize("place", [{"layer": 0}, {"expert": 0}, {"layer": 0, "expert": 0}])
def test_the_same_name_at_another_layer_or_expert_is_another_tensor(place: dict[str, Any]) -> None:
    found = against(manifest("a"), document([worker("api/0", 1)], held("a", "api/0", **place)))
    assert states(found) == [("differs", 0, 1, 1, {"not in the manifest": 1})]


def test_a_tensor_missing_in_a_fully_read_worker_is_a_difference() -> None:
    tensors = (held("a", "api/0", "api/1", "api/2"),)
    workers = [worker("api/0", 1), worker("api/1", 1, 2), worker("api/2", 2, 1)]
    found = against(manifest("a", "b"), document(workers, *tensors))
    assert states(found) == [("differs", 1, 1, 1, {}), ("equal", 1, 0, 0, {}), ("differs", 1, 1, 1, {})]
    assert found["headlines"][0] == "api/0 differs from the manifest in b, 1 of 2 tensors"
    row = found["differing"][0]
    assert (row["generation"], row["checksum"], row["dtype"], row["shape"]) == (None, None, None, None)
    assert (row["checksum_against"], row["dtype_against"], row["shape_against"]) == (RIGHT, "float32", [8])
    # It is no difference if the manifest lacks some of the tensors.
    assert states(against(manifest("a"), document([worker("api/0", 2)], held("a", "api/0"), held("x", "api/0")))) == [
        ("equal", 1, 0, 0, {"not in the manifest": 1})
    ]


def test_a_worker_without_known_weights_is_unknown_and_misses_nothing() -> None:
    found = against(manifest("a"), document([worker("api/0", 0)]))
    assert states(found) == [("unknown", 0, 0, 0, {})]
    assert (found["verdict"], found["headlines"], found["services"][0]["verdict"]) == ("nothing", [], "nothing")
    silent = against(manifest("a"), document([worker("api/0", 1), worker("api/1", 0, 1)], held("a", "api/0")))
    assert states(silent) == [("equal", 1, 0, 0, {}), ("unknown", 0, 0, 0, {})]
    assert silent["verdict"] == "equal"


def test_another_shard_is_not_compared_and_misses_nothing_of_this_one() -> None:
    found = against(
        manifest("a", shard="tp0"), document([worker("api/0", 1, shard="tp1")], held("a", "api/0", shard="tp1"))
    )
    assert states(found) == [("not comparable", 0, 0, 0, {"shard": 1})]
    assert (found["verdict"], found["not_comparable"]) == ("nothing", {"shard": 1})
    assert not found["differing"]


def test_checksums_of_another_key_are_not_compared_and_refused_if_all_are() -> None:
    workers = [worker("api/0", 1), worker("api/1", 1, key=OTHER_KEY)]
    tensors = (held("a", "api/0"), held("a", "api/1", checksum=WRONG))
    found = against(manifest("a", "b"), document(workers, *tensors))
    assert states(found) == [("differs", 1, 1, 1, {}), ("not comparable", 0, 0, 0, {"key": 1})]
    assert found["not_comparable"] == {"key": 1}
    with pytest.raises(BrickdError, match=f"has key {KEY}, the workers' checksums have key {OTHER_KEY}: "):
        against(manifest("a"), document(workers[1:], tensors[1]))
    # A worker without tensors may have another key.
    assert states(against(manifest("a"), document([worker("api/1", 0, key=OTHER_KEY)]))) == [("unknown", 0, 0, 0, {})]


def test_each_service_has_its_own_verdict_and_the_first_difference_leads() -> None:
    workers = [
        worker("api/0", 3),
        worker("api/1", 1, 3),
        worker("batch/0", 1, 3, service="batch"),
        worker("idle/0", 0, service="idle"),
    ]
    tensors = (
        held("a", "api/0", "api/1", "batch/0"),
        held("b", "api/0", checksum=WRONG),
        held("c", "api/0", checksum=WRONG),
    )
    found = against(manifest("a", "b", "c"), document(workers, *tensors))
    assert found["headlines"] == ["api/0 differs from the manifest in 2 of 3 tensors, first in b"]
    assert [(each["verdict"], each["equal"], each["compared"]) for each in found["services"]] == [
        ("differ", 1, 3), ("equal", 1, 1), ("nothing", 0, 0),
    ]  # fmt: skip
