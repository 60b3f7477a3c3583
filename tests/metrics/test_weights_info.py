"""The digests of weights as series: one for each worker, but none for a digest that keeps changing."""

from __future__ import annotations

from dataclasses import replace

from made_up_workers import MadeUp
from metric_pages import labels, parsed

from brickd.base.units import SECOND
from brickd.metrics.exposition import Exposition
from brickd.metrics.weights_info import CHANGES_MAX, WeightsInfo
from brickd.model.workers import Worker
from brickd.shm.ledger import Ledger

MADE_UP = MadeUp("api").reading()
WORKER = Worker("api/0", replace(MADE_UP, process=MADE_UP.process | {"key": 0x1F}), Ledger())
UUID = WORKER.reading.uuid


class Pages:
    """Makes pages of one worker at given seconds, and keeps what was logged."""

    def __init__(self) -> None:
        self.logged: list[str] = []
        self._info = WeightsInfo(lambda kind, text, **_: self.logged.append(f"{kind}: {text}"))

    def at(self, second: int, digest: str | None, *, shown: bool = True) -> tuple[list[str], list[float]]:
        """Return the digests on a page, and whether they are suppressed."""
        into = Exposition()
        names = {UUID: "api/0"} if shown else {}
        self._info.write([WORKER], names, {} if digest is None else {UUID: digest}, second * SECOND, into)
        of = parsed(into.text())
        suppressed = [of[key] for key in of if key[0] == "brickd_weights_info_suppressed"]
        return [each["digest"] for each in labels(of, "brickd_weights_info")], suppressed


def test_a_worker_has_its_present_digest_only() -> None:
    pages = Pages()
    assert pages.at(0, None) == ([], [])
    assert pages.at(15, "aa") == (["aa"], [0])
    assert pages.at(30, None) == ([], []), "while new weights are read"
    assert pages.at(45, "bb") == (["bb"], [0])


def test_above_four_changes_an_hour_it_has_none_and_this_is_logged_once() -> None:
    pages = Pages()
    for change in range(CHANGES_MAX + 1):
        assert pages.at(change, f"{change}") == ([f"{change}"], [0])
    for change in range(CHANGES_MAX + 1, 3 * CHANGES_MAX):
        assert pages.at(change, f"{change}") == ([], [1])
    assert [each.partition(":")[0] for each in pages.logged] == ["metrics_suppressed"]
    assert "api/0 changed more than 4 times in an hour" in pages.logged[0]


def test_after_an_hour_without_many_changes_it_has_one_again() -> None:
    pages = Pages()
    for change in range(CHANGES_MAX + 2):
        pages.at(change, f"{change}")
    assert pages.at(3600, f"{CHANGES_MAX + 1}") == ([], [1])
    assert pages.at(3601, f"{CHANGES_MAX + 1}") == ([f"{CHANGES_MAX + 1}"], [0])


def test_restarts_under_one_name_count_as_changes() -> None:
    pages = Pages()
    for change in range(CHANGES_MAX + 2):
        pages.at(2 * change, f"{change}")
        pages.at(2 * change + 1, None)
    assert pages.at(20, "x") == ([], [1])


def test_a_worker_without_series_has_no_digest() -> None:
    assert Pages().at(0, "aa", shown=False) == ([], [])


def test_a_digest_has_the_shard_and_the_key_without_which_it_cannot_be_compared() -> None:
    of = replace(WORKER.reading, header=WORKER.reading.header | {"coordinates": b"dp3.tp1"})
    into = Exposition()
    info = WeightsInfo(lambda *_, **__: None)
    info.write([Worker("api/0", of, Ledger())], {UUID: "api/0"}, {UUID: "aa"}, 0, into)
    (found,) = labels(parsed(into.text()), "brickd_weights_info")
    assert (found["shard"], found["key"], found["digest"]) == ("tp1", "000000000000001f", "aa")
