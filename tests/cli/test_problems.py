"""Problems: the text and the next command of each kind, and the order of problems."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from made_up_workers import MadeUp

from brickd.analysis.numerics.not_finite import Birth, BornAt
from brickd.analysis.numerics.online_state import Compared
from brickd.analysis.problem_book import Book
from brickd.analysis.timing.alarms import Alarm
from brickd.analysis.timing.findings import STALE_NS, StragglerVerdict
from brickd.base.timestamps import Moment, rfc3339
from brickd.datasources.world import DaemonStatus
from brickd.errors import SegmentOverBudget, SegmentRefused, SegmentUnopened
from brickd.model.worker_names import KnownNames
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.removed_workers import RemovedWorker, WorkerCounts
from brickd.views.problems import LISTED_MAX, Seen, active, problems

DAEMON = DaemonStatus("1.0", 1, 0, 0, "test-")
T = 1_700_000_000 * 10**9
ACTIVE_NS = Book().active_ns
OFF, SPANS = _reader.CONTROL_OFF, _reader.CONTROL_SPANS


def made(name: str = "api/0", *, counts: dict[str, int] | None = None, **of: Any) -> Worker:
    """Return a made-up worker with these counts in its process line and these values in its reading."""
    reading = MadeUp(service=name.partition("/")[0]).reading()
    process: Any = defaultdict(int, counts or {})
    header: Any = defaultdict(lambda: 64, reading.header)
    reading = replace(reading, header=header, process=process, **of)
    return Worker(name, reading, ledger_of(reading))


def reported(*workers: Worker, **of: Any) -> list[tuple[str, str]]:
    return [(each.text, each.command) for each in problems(Seen(workers, **of))]


def test_each_problem_of_the_daemon_is_reported() -> None:
    assert reported(daemon=DAEMON) == []
    assert reported(daemon=DAEMON._replace(checkpoint_problem="no space")) == [
        ("the daemon cannot save its state: no space", "brickd events")
    ]
    assert reported(daemon=DAEMON._replace(recording_problem="full")) == [
        ("the recording cannot be written: full", "brickd events")
    ]
    assert reported(daemon=DAEMON._replace(broken="cut off")) == [
        ("the daemon started without its saved state: cut off", "brickd events")
    ]


def test_disabled_recording_is_reported_once_per_service_for_living_workers() -> None:
    off = [made("api/0", flags=OFF), made("api/1", flags=OFF | SPANS), made("b c/0", flags=OFF)]
    ended = made("api/4", flags=OFF, pid=None, counts={"ended": 1})
    assert reported(*off, made("api/2"), made("api/3", flags=SPANS), ended, daemon=DAEMON) == [
        ("recording is off in 2 workers of api", "brickd set --recording on api"),
        ("recording is off in 1 worker of b c", "brickd set --recording on 'b c'"),
    ]


def test_settings_left_by_a_killed_reader_are_reported_without_a_daemon() -> None:
    left = [made(flags=SPANS, drained=False), made(flags=SPANS, drained=False), made(asked_rate=5, drained=False)]
    read = [made(flags=SPANS), made(asked_rate=5), made(drained=False)]
    assert reported(*left, *read) == [
        ("2 workers record single spans that no process reads: the reader was killed", "brickd up -d"),
        ("a daemon that was killed had changed which fingerprints 1 worker records", "brickd up -d"),
    ]
    assert reported(*read) == []
    assert reported(*left, daemon=DAEMON) == []


def test_dead_workers_are_reported_by_first_name_and_count_but_not_ended_ones() -> None:
    dead, ended = made("api/3", pid=None), made("api/4", pid=None, counts={"ended": 1})
    assert reported(ended, made()) == []
    assert reported(ended, dead) == [("api/3 died; the totals are kept", "brickd prune")]
    many = made("api/9", pid=None)._replace(together=1_000)
    assert reported(dead, many)[0][0] == "api/3 and 1,000 more died; the totals are kept"


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (SegmentRefused, "brickd prune --refused"),
        (SegmentUnopened, "brickd doctor"),
        (SegmentOverBudget, "brickd doctor"),
    ],
)
def test_prune_is_suggested_only_for_files_that_it_would_remove(error: type[SegmentRefused], command: str) -> None:
    assert reported(refused=[error("/dev/shm/x", "odd")]) == [("/dev/shm/x is quarantined: odd", command)]


def test_more_refused_files_than_are_listed_are_reported_by_count() -> None:
    refused = [SegmentRefused(f"f{number}", "odd") for number in range(1_000 + LISTED_MAX)]
    assert len(reported(refused=refused[:LISTED_MAX])) == LISTED_MAX
    assert reported(refused=refused[: LISTED_MAX + 1])[0] == ("65 files are quarantined", "brickd doctor")
    found = reported(refused=refused)
    assert found[0] == ("1,064 files are quarantined", "brickd doctor")
    assert [text for text, _ in found[1:]] == [f"f{number} is quarantined: odd" for number in range(LISTED_MAX)]


def test_losses_are_reported_per_worker_with_a_command() -> None:
    lost = made("a b/0", counts={"no_lane": 1})
    ((text, command),) = reported(lost)
    assert (text.startswith("a b/0: 1 span not recorded"), command) == (True, "brickd inspect 'a b/0'")


def test_a_daemon_lists_recent_problems_and_separately_silenced_ones() -> None:
    lost, off = made("api/0", counts={"no_lane": 3}), made("api/1", flags=OFF)
    found = problems(Seen([lost, off], daemon=DAEMON))
    living = {"api/0", "api/1"}
    book, _ = Book().updated(found, living, T)
    seen = Seen([lost, off], daemon=DAEMON, living=living, book=book)
    of_off, of_lost = "off", "lost"

    def listed(at_ns: int, *active_ns: int, of: Seen = seen) -> tuple[list[str], list[str]]:
        listed = active(of, at_ns, *active_ns)
        return [each["kind"] for each in listed.problems], [each["kind"] for each in listed.silenced]

    assert listed(T + ACTIVE_NS) == ([of_off, of_lost], [])
    assert listed(T + ACTIVE_NS + 1) == ([of_off], [])
    assert listed(T + ACTIVE_NS + 1, ACTIVE_NS + 1) == ([of_off, of_lost], [])
    assert listed(T + 6, of=seen._replace(book=book._replace(active_ns=5))) == ([of_off], []), (
        "the problem has the time from the book of problems"
    )
    assert listed(T, 0) == ([of_off, of_lost], []), "a time of 0 does not mean the default time"
    assert listed(T + 1, 0) == ([of_off], [])
    grown = seen._replace(workers=[made("api/0", counts={"no_lane": 4})])
    assert listed(T + 2 * ACTIVE_NS, of=grown) == ([of_lost], [])
    silenced = seen._replace(book=book.silenced(found[0].id, T + 9))
    assert (listed(T + 8, of=silenced), listed(T + 9, of=silenced)) == (([of_lost], [of_off]), ([of_off, of_lost], []))
    old = seen._replace(book=book.silenced(found[1].id, T + 9 * ACTIVE_NS))
    assert listed(T + 8 * ACTIVE_NS, of=old) == ([of_off], [of_lost]), "a silence is valid, even if the cause is old"
    assert listed(T, of=seen._replace(living=())) == ([of_lost], []), "a worker that ended records nothing"
    assert listed(T + 9 * ACTIVE_NS, of=seen._replace(book=None)) == ([of_off, of_lost], [])


def test_problems_without_room_in_the_book_are_counted() -> None:
    """At each check, problems beyond the limit are found and listed, but they cause no event and no alarm."""
    seen = Seen([made()], daemon=DAEMON, living={"api/0"}, book=Book(unkept=2))
    (last,) = [each for each in active(seen, T).problems if each["kind"] == "daemon"]
    assert (last["text"], last["command"]) == (
        "2 problems have no room among the 512 problems that the daemon follows, so there is no event and no alarm"
        " about them",
        "brickd workers",
    )
    assert not [each for each in active(seen._replace(book=Book()), T).problems if each["kind"] == "daemon"]


def test_earlier_births_of_nan_are_shown_with_a_longer_time() -> None:
    one = made("api/0")
    header: Any = defaultdict(lambda: 64, {**one.reading.header, "uuid": b"1" * 16})
    other = one._replace(name="api/1", reading=replace(one.reading, header=header))
    births = {
        BornAt("api", "norm", 5, uuid, "NaN"): Birth(3, T - 2 * ACTIVE_NS, T - ACTIVE_NS - 1)
        for uuid in (one.reading.uuid, "another")
    }
    names = {one.reading.uuid: "api/0", "another": "api/9"}
    seen = Seen(
        [one], DAEMON, compared=Compared(births=births), called=KnownNames(names), living={"api/0"}, book=Book()
    )
    assert active(seen, T).problems == []
    (shown,) = active(seen, T, ACTIVE_NS + 1).problems
    assert (shown["kind"], shown["workers"]) == ("nan", ["api/0"]), "the problem names only the requested workers"
    assert problems(seen._replace(workers=[other])) == []
    alarm = Alarm("nan", "api", ("api/0",), "", "api/0 computes NaN", "brickd diff api")
    assert [each.mark for each in problems(seen._replace(alarms=[alarm]))] == [3], "the alarm adds no problem"


def test_the_times_of_a_problem_come_from_the_book() -> None:
    lost, off = made("api/0", counts={"no_lane": 3}), made("api/1", flags=OFF)
    book, _ = Book().updated(problems(Seen([lost, off])), {"api/1"}, T)
    later = T + 60 * 10**9
    seen = Seen([lost, off], living={"api/1"}, book=book)
    times = [(each["since"], each["seen"]) for each in active(seen, later).problems]
    assert times == [(rfc3339(T), rfc3339(later)), (rfc3339(T), rfc3339(T))]
    times = [(each["since"], each["seen"]) for each in active(seen._replace(book=None), later).problems]
    assert times == [(None, rfc3339(later)), (None, None)]


def test_an_outdated_straggler_verdict_is_reported() -> None:
    judged = StragglerVerdict((), (), (), 8, 8, 1, Moment(0, 0), STALE_NS - 1)
    assert reported(slow=judged) == []
    assert reported(slow=replace(judged, age_ns=STALE_NS)) == [
        ("no worker is judged now: the daemon compared all workers last 1.0 min ago", "brickd events")
    ]


def test_problems_that_falsify_numbers_come_before_missing_ones() -> None:
    lost = made("api/0", flags=OFF, counts={"no_lane": 1})
    counts = WorkerCounts(spans=7)
    found = reported(
        lost,
        made("api/1", pid=None),
        daemon=DAEMON._replace(broken="cut off", checkpoint_problem="no space", recording_problem="full"),
        slow=StragglerVerdict((), (), (), 8, 8, 1, Moment(0, 0), STALE_NS),
        refused=[SegmentRefused("f", "odd")],
        removed=[RemovedWorker("", "", "api", -1, "", 0, 0, 0, asked=False, workers=1, counts=counts)],
        weights=[{"service": "api", "workers": ["api/2"], "text": "api/2 differs", "command": "brickd weights api"}],
    )
    assert found[:2] == [
        ("weights: api/2 differs", "brickd weights api"),
        ("7 spans of 1 removed worker are missing in all totals: no daemon kept them", "brickd prune"),
    ]
    beginnings = [
        "no worker is judged", "recording is off", "f is quarantined", "the daemon cannot save", "the recording",
        "the daemon started without its saved state", "api/1 died", "api/0: 1 span",
    ]  # fmt: skip
    assert [text.startswith(each) for (text, _), each in zip(found[2:], beginnings, strict=True)] == [True] * 8
    alone = reported(removed=[RemovedWorker("", "", "api", -1, "", 0, 0, 0, asked=False, workers=1, counts=counts)])
    assert [command for _, command in alone] == ["brickd up -d"]
    asked = RemovedWorker("", "", "api", -1, "", 0, 0, 0, asked=True, workers=1, counts=counts)
    assert reported(removed=[asked]) == []
