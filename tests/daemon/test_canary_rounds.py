"""Rounds of canaries: who has an order, what counts as an answer, and when the daemon gives up."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import source_pieces
from forge import field, golden, placed, seal

from brickd.base.units import SECOND
from brickd.daemon.attachment import Attached
from brickd.daemon.canary_document import round_document
from brickd.daemon.canary_rounds import BEGINS_NS, ENDS_NS, ROUNDS_MAX, CanaryRounds
from brickd.model.canary_definitions import CanaryDefinition
from brickd.model.kernel_sources.store import Sources
from brickd.model.retained_workers import RetainedWorker
from brickd.shm import _reader
from brickd.shm.segment import open_segment

GREETING, OTHER = CanaryDefinition("greeting", (1, 2)), CanaryDefinition("other", (3,))
Workers = list[Attached]


@pytest.fixture
def workers(prefix: str) -> Iterator[Workers]:
    """Three segments: two of the service golden, one of the service other."""
    made = []
    for number, service in enumerate((b"golden", b"golden", b"other")):
        image = bytearray(golden("1.15"))
        offset, _, _ = field("header", "uuid")
        image[offset : offset + 16] = bytes([number]) * 16
        offset, _, _ = field("header", "service")
        image[offset : offset + 64] = service.ljust(64, b"\0")
        placed(f"{prefix}{number}", bytes(seal(image)))
        segment = open_segment(f"{prefix}{number}", os.O_RDWR)
        made.append(
            Attached(segment, _reader.Drain(segment.fd, None), RetainedWorker(name=f"w{number}"), Sources(), 0, 0)
        )
    yield made
    for each in made:
        each.segment.close()


def words(of: Workers) -> list[tuple[int, int]]:
    """Return the digest and the order that each worker has."""
    return [divmod(each.segment.control()["canary"], 2**32) for each in of]


def sent(worker: Attached, end: str = "done", **values: Any) -> list[source_pieces.Piece]:
    """Return the pieces of an answer of a worker to the order that it has."""
    sites = [["mlp", 0, "a", "b"]] if end == "done" else []
    found = {
        **{"order": words([worker])[0][1], "name": "greeting", "end": end, "reason": None, "input": "", "model": ""},
        **{"context": "", "sites": sites, "slices": 1, "spent_s": 0.0, "longest_s": 0.0},
    }
    return source_pieces.all_pieces(json.dumps(found | values).encode())


def states(rounds: CanaryRounds, number: int = 1) -> list[tuple[str, str | None]]:
    made = rounds.round(number)
    assert made is not None
    return [(each["state"], each["end"]) for each in round_document(made, 0)["results"]]


def test_an_order_is_the_digest_and_the_next_number(workers: Workers) -> None:
    before = words(workers)
    rounds = CanaryRounds()
    rounds.begin(workers[:1], [GREETING])
    rounds.move(lambda: workers, 0)
    assert words(workers) == [(GREETING.digest, before[0][1] + 1), *before[1:]]


def test_the_number_after_the_last_is_one(workers: Workers) -> None:
    segment = workers[0].segment
    for word, number in ((0, 1), (2**32 - 2, 2**32 - 1), (2**32 - 1, 1)):
        offset = _reader.CONTROL + next(row[2] for row in _reader.later() if row[:2] == ("control", "canary"))
        os.pwrite(segment.fd, word.to_bytes(8, "little"), offset)
        assert segment.order_canary(5) == number
        assert words(workers)[0] == (5, number)


def test_of_a_service_one_worker_at_a_time_has_an_order(workers: Workers) -> None:
    before, rounds = words(workers), CanaryRounds()
    rounds.begin(workers, [GREETING, OTHER])
    rounds.move(lambda: workers, 0)
    rounds.move(lambda: workers, 1)
    assert [word != old for word, old in zip(words(workers), before, strict=True)] == [True, False, True]
    rounds.take(workers[0].uuid, sent(workers[0], "running"))
    rounds.move(lambda: workers, 2)
    assert words(workers)[1] == before[1]
    rounds.take(workers[0].uuid, sent(workers[0]))
    rounds.move(lambda: workers, 3)
    assert words(workers)[1] == (GREETING.digest, before[1][1] + 1)
    assert states(rounds) == [("over", "done"), *[("ordered", None)] * 2, *[("waiting", None)] * 3]


def test_a_later_round_waits_for_the_workers_of_an_earlier_one(workers: Workers) -> None:
    before, rounds = words(workers), CanaryRounds()
    rounds.begin(workers[1:2], [GREETING])
    rounds.move(lambda: workers, 0)
    rounds.begin(workers[:1], [GREETING])
    rounds.move(lambda: workers, 1)
    assert words(workers)[0] == before[0]
    rounds.take(workers[1].uuid, sent(workers[1]))
    rounds.move(lambda: workers, 2)
    assert words(workers)[0] != before[0]


def test_an_answer_may_come_in_any_order_of_pieces_and_is_taken_once(workers: Workers) -> None:
    rounds = CanaryRounds()
    rounds.begin(workers[:1], [GREETING])
    rounds.move(lambda: workers, 0)
    pieces = sent(workers[0])
    for piece in reversed(pieces):
        rounds.take(workers[0].uuid, [piece])
    assert (states(rounds), rounds.ignored) == ([("over", "done")], 0)
    rounds.take(workers[0].uuid, sent(workers[0], "off"))
    assert states(rounds) == [("over", "done")]
    assert rounds.ignored > 0


@pytest.mark.parametrize("late", ["begins", "ends"])
def test_a_worker_that_does_not_answer_in_time_is_given_up(workers: Workers, late: str) -> None:
    rounds = CanaryRounds()
    rounds.begin(workers[:2], [GREETING])
    rounds.move(lambda: workers, 7)
    if late == "ends":
        rounds.take(workers[0].uuid, sent(workers[0], "running"))
    limit = BEGINS_NS if late == "begins" else ENDS_NS
    rounds.move(lambda: workers, 7 + limit)
    assert states(rounds)[0][0] == ("ordered" if late == "begins" else "running")
    rounds.move(lambda: workers, 8 + limit)
    assert states(rounds) == [("over", "silent"), ("ordered", None)]


def test_a_worker_that_ended_or_has_an_older_agent_is_not_waited_for(workers: Workers) -> None:
    rounds = CanaryRounds()
    rounds.begin(workers, [GREETING])
    workers[1].segment.header["minor"] = 14
    rounds.move(lambda: workers[1:2], 0)
    assert states(rounds) == [("over", "gone"), ("over", "refused"), ("over", "gone")]


def test_an_answer_to_another_order_or_of_another_worker_is_ignored(workers: Workers) -> None:
    rounds = CanaryRounds()
    rounds.begin(workers[:1], [GREETING])
    rounds.take(workers[0].uuid, sent(workers[0])[:1])
    rounds.move(lambda: workers, 0)
    order = words(workers)[0][1]
    rounds.take(workers[0].uuid, sent(workers[0], order=order + 1))
    rounds.take(workers[1].uuid, sent(workers[0])[:1])
    assert (states(rounds), rounds.ignored) == ([("ordered", None)], 3)


@pytest.mark.parametrize(
    ("pieces", "ignored"),
    [
        (source_pieces.all_pieces(b"{}"), 1),
        (source_pieces.all_pieces(b"{}", name=b"n")[:1], 1),
        (source_pieces.all_pieces(b"{}", path=b"p")[:1], 1),
        ([(5, 2 << 30 | 1638, bytes(80))], 1),
        ([(5, 2 << 30 | 1638, bytes(40))], 0),
        ([(5, 2 << 30 | 2**30 - 1, bytes(40))], 1),
        ([source_pieces.end(5, 0, 0, 2**40)], 1),
        ([(5, 3 << 30 | 1, bytes(40))], 1),
    ],
)
def test_invalid_pieces_are_counted_and_do_not_end_a_turn(
    workers: Workers, pieces: list[source_pieces.Piece], ignored: int
) -> None:
    rounds = CanaryRounds()
    rounds.begin(workers[:1], [GREETING])
    rounds.move(lambda: workers, 0)
    rounds.take(workers[0].uuid, pieces)
    assert (states(rounds), rounds.ignored) == ([("ordered", None)], ignored)
    rounds.take(workers[0].uuid, sent(workers[0]))
    assert states(rounds) == [("over", "done")]


def test_the_memory_for_incomplete_answers_is_bounded(workers: Workers) -> None:
    rounds = CanaryRounds()
    rounds.begin(workers[:1], [GREETING])
    rounds.move(lambda: workers, 0)
    for hash_ in range(100):
        rounds.take(workers[0].uuid, [(hash_, 2 << 30 | 1638, bytes(40))])
    assert rounds.incomplete_bytes <= 4 * 1.1 * (1 << 16)
    rounds.take(workers[0].uuid, sent(workers[0]))
    rounds.move(lambda: workers, SECOND)
    assert (states(rounds), rounds.incomplete_bytes) == ([("over", "done")], 0)


def test_a_second_result_in_one_pass_does_not_replace_the_first(workers: Workers) -> None:
    rounds = CanaryRounds()
    rounds.begin(workers[:1], [GREETING])
    rounds.move(lambda: workers, 0)
    rounds.take(workers[0].uuid, [*sent(workers[0]), *sent(workers[0], "off")])
    assert states(rounds) == [("over", "done")]


def test_equal_workers_and_a_lone_one_of_another_service_are_unproven(workers: Workers) -> None:
    rounds = CanaryRounds()
    made = rounds.begin(workers, [GREETING])
    for each in workers:
        rounds.move(lambda: workers, 0)
        rounds.take(each.uuid, sent(each))
    document = round_document(made, 0)
    assert [each["verdict"] for each in document["results"]] == ["equal", "equal", "not compared"]
    assert document["verdict"] == "unproven"


def test_only_the_newest_rounds_are_kept(workers: Workers) -> None:
    rounds = CanaryRounds()
    for _ in range(ROUNDS_MAX + 1):
        rounds.begin(workers[:1], [GREETING])
    assert [number for number in range(1, ROUNDS_MAX + 3) if rounds.round(number)] == [*range(2, ROUNDS_MAX + 2)]


def test_a_round_is_equal_only_if_each_canary_was_compared_in_each_worker(workers: Workers) -> None:
    rounds = CanaryRounds()
    made = rounds.begin(workers[:2], [GREETING])
    assert round_document(made, 0)["verdict"] == "unproven"
    for each in workers[:2]:
        rounds.move(lambda: workers, 0)
        rounds.take(each.uuid, sent(each))
        expected = "equal" if each is workers[1] else "unproven"
        assert round_document(made, 0)["verdict"] == expected
    other = rounds.begin(workers[:2], [GREETING])
    for each, digest in zip(workers, "ax", strict=False):
        rounds.move(lambda: workers, 0)
        rounds.take(each.uuid, sent(each, sites=[["mlp", 0, digest, "b"]]))
    document = round_document(other, 5)
    assert (document["verdict"], document["over"], document["ignored"]) == ("differ", True, 5)
    assert document["results"][0]["first"] == {"kernel": "mlp", "layer": 0, "part": "prompt"}
