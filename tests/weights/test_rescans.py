"""If a finding names workers, they read their weights again: at once, only once for each finding, and at most once a
minute.
"""

from __future__ import annotations

import pytest
from faults import Start
from made_up_weights import several
from running import running
from verbs import started

from brickd.analysis.numerics.not_finite import BornAt
from brickd.analysis.numerics.online_state import Case, DivergentSite, KeptEvidence, ServiceSite
from brickd.analysis.weights.monitor import Weighing
from brickd.analysis.weights.rescans import APART_NS, Due, Rescans, WeightDoubts
from brickd.base.paths import runtime
from brickd.model.survey_snapshot import Snapshot
from brickd.model.workers import Survey, Worker

NOW = 1 << 40
MLP, NORM = (ServiceSite("api", name, 3) for name in ("mlp", "norm"))


MLP_OF_U2 = BornAt("api", "mlp", 3, "u2", "NaN")


def found(place: ServiceSite, *outliers: str) -> DivergentSite:
    one, two = (KeptEvidence(uuid, b"", "", "") for uuid in ("u0", "u1"))
    case = Case(1, one, two)
    names = {f"u{n}": f"api/{n}" for n in range(3)}
    return DivergentSite(place, "ffn", 1, names, dict.fromkeys(outliers, 1), frozenset(), case, case)


def findings(*of: DivergentSite) -> dict[ServiceSite, DivergentSite]:
    return {each.place: each for each in of}


def due(rescans: Rescans, now_ns: int) -> set[str]:
    return {uuid for each in rescans.due(now_ns) for uuid in each.workers}


def test_the_outliers_of_a_finding_are_due_at_once_and_once() -> None:
    rescans = Rescans()
    rescans.look(findings(found(MLP, "u1")))
    assert rescans.due(NOW) == [Due("api", "mlp layer 3 differs", ("u1",))]
    rescans.look(findings(found(MLP, "u1")))
    assert rescans.due(NOW + 10 * APART_NS) == []


def test_without_a_majority_all_workers_are_due() -> None:
    rescans = Rescans()
    rescans.look(findings(found(MLP)))
    assert due(rescans, NOW) == {"u0", "u1", "u2"}


def test_a_worker_named_again_within_a_minute_is_due_after_it() -> None:
    rescans = Rescans()
    rescans.look(findings(found(MLP, "u1")))
    rescans.due(NOW)
    rescans.look(findings(found(MLP, "u1"), found(NORM, "u1", "u2")))
    assert due(rescans, NOW + APART_NS - 1) == {"u2"}
    assert due(rescans, NOW + APART_NS) == {"u1"}


def test_a_worker_that_joins_a_finding_is_due() -> None:
    rescans = Rescans()
    rescans.look(findings(found(MLP, "u1")))
    rescans.due(NOW)
    rescans.look(findings(found(MLP, "u1", "u2")))
    assert due(rescans, NOW + APART_NS) == {"u2"}


def test_a_finding_that_returns_is_a_new_one() -> None:
    rescans = Rescans()
    for of in (findings(found(MLP, "u1")), {}, findings(found(MLP, "u1"))):
        rescans.due(NOW)
        rescans.look(of)
    assert due(rescans, NOW + APART_NS) == {"u1"}


def test_a_finding_of_an_earlier_daemon_makes_no_worker_due() -> None:
    rescans = Rescans([found(MLP, "u1")])
    rescans.look(findings(found(MLP, "u1")))
    assert rescans.due(NOW) == []


def test_a_birth_makes_its_worker_due_once_per_site() -> None:
    mlp, norm, other = BornAt("api", "mlp", 3, "u1", "NaN"), BornAt("api", "norm", -1, "u1", "Inf"), MLP_OF_U2
    rescans = Rescans((), [other])
    rescans.look_born([other, mlp])
    assert rescans.due(NOW) == [Due("api", "NaN is born at mlp layer 3", ("u1",))]
    rescans.look_born([other, mlp])
    assert rescans.due(NOW + APART_NS) == []
    rescans.look_born([other, norm, mlp])
    assert rescans.due(NOW + 2 * APART_NS) == [Due("api", "Inf is born at norm", ("u1",))]
    rescans.look_born([])
    rescans.look_born([mlp, other])
    assert due(rescans, NOW + 3 * APART_NS) == {"u1", "u2"}


def test_causes_of_a_removed_service_are_forgotten() -> None:
    rescans = Rescans()
    rescans.name("api", "api", ["u1"], "weights differ")
    rescans.retain({"batch"})
    rescans.due(NOW)
    rescans.name("api", "api", ["u1"], "weights differ")
    assert due(rescans, NOW + APART_NS) == {"u1"}
    rescans.look(findings(found(MLP, "u2")))
    rescans.due(NOW + 2 * APART_NS)
    rescans.retain({"batch"})
    rescans.look(findings(found(MLP, "u2")))
    assert due(rescans, NOW + 3 * APART_NS) == set(), "a finding by inputs is not about weights"


def test_workers_with_differing_weights_are_due_once_per_life_of_their_service() -> None:
    weighed = several("api/0", "api/1", "api/2", watched=1)
    for name, checksum in zip(("api/0", "api/1", "api/2"), (1, 1, 2), strict=True):
        weighed.add_weight(name, checksum)
    uuids = [worker.reading.uuid for worker in weighed.workers]
    rescans = Rescans()
    doubts, at_ns = WeightDoubts(Weighing(weighed.numerics.weights), rescans), NOW

    def named(workers: list[Worker]) -> set[str]:
        nonlocal at_ns
        at_ns += APART_NS
        doubts.take(Snapshot(at_ns, at_ns, Survey(workers, [])))
        return due(rescans, at_ns)

    assert named(weighed.workers) == {uuids[2]}
    assert named(weighed.workers) == set()
    assert named([]) == set()
    assert named(weighed.workers) == {uuids[2]}
    assert named(weighed.workers[1:]) == {uuids[1]}, "two workers disagree, and one of them already has a request"


def test_a_worker_named_by_several_others_is_due_once() -> None:
    rescans, now_ns = Rescans(), NOW
    for workers, expected in ((["u1"], {"u1"}), (["u1"], set()), ([], set()), (["u1"], {"u1"})):
        now_ns += APART_NS
        rescans.name("weights of api", "api", workers, "weights differ")
        rescans.look(findings())
        assert due(rescans, now_ns) == expected


FLIPPED = """
from array import array
weights = {"layers.0.mlp.up.weight": array("f", range(8)), "layers.1.mlp.up.weight": array("f", range(8))}
brick.weights(weights, share=1)
pause()
if WRONG: weights["layers.1.mlp.up.weight"][3] = 7
x = np.arange(8, dtype="f")
with brick.step(1): brick.checksum("layers.*.mlp", x * np.array(weights["layers.1.mlp.up.weight"]), input=x, layer=1)
hear = threading.Event()
threading.Thread(target=lambda: (pause(), hear.set())).start()
while not hear.wait(0.001):
    with brick.step(None): pass
"""


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_weights_changed_after_the_load_are_named_with_the_outputs(worker: Start) -> None:
    key = str(runtime().directory / "key")
    with running() as daemon:
        workers = [
            started(worker, f"import threading, numpy as np\nWRONG = {n == 1}\n{FLIPPED}", BRICKD_SERVICE="api",
                    BRICKD_WORKER=str(n), BRICKD_KEY_FILE=key)
            for n in range(3)
        ]  # fmt: skip
        daemon.once("/weights", lambda of: of["services"] and of["services"][0]["equal"] == 3)
        for each in workers:
            each.go()
        event = daemon.until("weights_rescan")
        assert (event["worker"], event["command"]) == ("api/1", "brickd weights api")
        assert event["text"] == "api/1 reads its weights again: layers.*.mlp layer 1 differs"
        weights = daemon.once("/weights", lambda of: of["differing"])
        assert [each["tensor"] for each in weights["differing"]] == ["layers.*.mlp.up.weight"]
        for each in workers:
            each.go()
