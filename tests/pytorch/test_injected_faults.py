"""Each fault of `scripts/bench verdicts` changes answers or times, and can be removed."""

from __future__ import annotations

import os
import resource
import threading
import time
from typing import Any

import pytest
from benchmarks.faulty import frozen
from benchmarks.faulty.cells import drawn

for needed in ("torch", "transformers"):
    pytest.importorskip(needed, reason=f"{needed} is not installed: .ci/run does it")
pytestmark = pytest.mark.nightly

from benchmarks.faulty.architectures import ARCHITECTURES, answered, model  # noqa: E402
from benchmarks.faulty.injected import Injector  # noqa: E402

REQUESTS = range(8)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def built(request: pytest.FixtureRequest) -> tuple[str, Any]:
    return request.param, model(ARCHITECTURES[request.param], 1)


def answers(built: tuple[str, Any]) -> list[str]:
    name, whole = built
    return [answered(ARCHITECTURES[name], whole, number) for number in REQUESTS]


def test_the_same_seed_and_request_give_the_same_bits(built: tuple[str, Any]) -> None:
    name, _ = built
    other = model(ARCHITECTURES[name], 1)
    assert answers(built) == answers((name, other))
    assert len(set(answers(built))) == len(REQUESTS)
    assert answers((name, model(ARCHITECTURES[name], 2))) != answers(built)


@pytest.mark.parametrize("fault", ["weight_bit", "int8_weight", "stale_layer", "eps", "rare_nan"])
def test_a_numeric_fault_changes_answers_until_it_is_removed(built: tuple[str, Any], fault: str) -> None:
    name, whole = built
    if f"{name}/{fault}/equal" not in (cell.key for cell in drawn(1)):
        pytest.skip("not for this architecture")
    before, state = answers(built), {key: str(each) for key, each in whole.state_dict().items()}
    for seed in range(3):
        one = Injector(whole, ARCHITECTURES[name], 0).inject(fault, seed)
        here = [whole.get_submodule(each.removesuffix(".weight")) for each in one.scope if fault != "weight_bit"]
        assert all(here) or fault == "weight_bit"
        wrong = [answers(built) != before for _ in range(1 + frozen.NAN_CALLS // len(REQUESTS))]
        one.remove()
        assert any(wrong), (seed, one)
        assert answers(built) == before
    assert {key: str(each) for key, each in whole.state_dict().items()} == state


@pytest.mark.parametrize(("fault", "times"), [("slow_2x", 2.0), ("slow_20_percent", 1.2)])
def test_a_slow_operator_takes_more_processor_time_and_computes_the_same(
    built: tuple[str, Any], fault: str, times: float
) -> None:
    name, whole = built
    before = answers(built)
    one = Injector(whole, ARCHITECTURES[name], 0).inject(fault, 1)
    slow = whole.get_submodule(one.scope[0])
    plain, made = type(slow).forward.__get__(slow), slow.forward

    def took(forward: Any) -> list[float]:
        seconds = []

        def timed(*args: Any, **keywords: Any) -> Any:
            began = time.thread_time()
            result = forward(*args, **keywords)
            seconds.append(time.thread_time() - began)
            return result

        slow.forward = timed
        assert answers(built) == before
        slow.forward = made
        return seconds

    rounds = [(took(plain), took(made)) for _ in range(3)]
    one.remove()
    least = [map(min, zip(*each, strict=True)) for each in zip(*rounds, strict=True)]
    usual, slower = (sum(each) for each in least)
    assert slower / usual == pytest.approx(times, rel=0.2)
    assert not any("forward" in vars(each) for each in whole.modules())


def test_a_stuck_operator_continues_with_the_next_command(built: tuple[str, Any]) -> None:
    name, whole = built
    before = answered(ARCHITECTURES[name], whole, 1)
    read, write = os.pipe()
    one = Injector(whole, ARCHITECTURES[name], read).inject("stuck", 1)
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(answered(ARCHITECTURES[name], whole, 1)))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    os.write(write, b"\n")
    thread.join()
    one.remove()
    assert found == [before]
    os.close(read)
    os.close(write)


def test_a_leak_keeps_memory_per_request_and_a_pin_is_undone() -> None:
    architecture = ARCHITECTURES["bert"]
    injector = Injector(model(architecture, 1), architecture, 0)
    one = injector.inject("leak", 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    for _ in range(400):
        one.each_request()
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before > 200 * frozen.LEAK_BYTES
    one.remove()
    allowed = os.sched_getaffinity(0)
    one = injector.inject("pinned", 1)
    assert len(os.sched_getaffinity(0)) == 1
    one.remove()
    assert os.sched_getaffinity(0) == allowed
