"""Queries: the command line and a query string accept the same values, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from typing import Any, get_args

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.base.timestamps import UnclearTimeError, parse_time
from brickd.cli.query_options import asks
from brickd.errors import WrongQuestion
from brickd.query.orders import Forgetting, RecordedFile, StartRecording
from brickd.query.parameters import Switch
from brickd.query.queries import (
    SORTS,
    BricksQuery,
    By,
    EventsQuery,
    HangQuery,
    InspectQuery,
    RooflineQuery,
    StatusQuery,
    TreeQuery,
    WeightsQuery,
    WorkersQuery,
)
from brickd.query.query import Query, from_query, parameters, to_query
from brickd.query.query import key as key_of

KINDS: list[type[Query]] = [
    BricksQuery, EventsQuery, HangQuery, InspectQuery, StatusQuery, TreeQuery, WeightsQuery,
    WorkersQuery, StartRecording,
]  # fmt: skip
TEXTS = [
    "", "0", "1", "7", "-1", "+1", " 1", "1.5", "0.01", "1e2", "1e999", "nan", "inf", "-0", "٣", "9" * 25, "self",
    "500ms", "3s", "1.5m", "1h", "2d", "m", "1 s", "1ms2", "1e305h", "30", "60s", "61s", "start", "Start",
    "64KiB", "64m", "64MB", "0.0001M", "65536",
    "SELF", "spread", "worker", "true", "on", "a\x1b[2J", "\udc80",
]  # fmt: skip

NAMES = st.lists(st.text(min_size=1), max_size=3).map(tuple)
QUESTIONS: st.SearchStrategy[Query] = st.one_of(
    st.builds(StatusQuery, NAMES),
    st.builds(WorkersQuery, NAMES),
    st.builds(
        BricksQuery, NAMES, st.sampled_from([sort for sort in SORTS if sort != "spread"]),
        st.sampled_from([None, *get_args(By)]), st.none() | st.text(min_size=1), st.none() | st.integers(1, 2**60),
    ),
    st.builds(
        TreeQuery, NAMES, st.booleans(), st.none() | st.integers(1, 10**6), st.floats(0, 100),
        st.just("start") | st.floats(10, 60),
    ),
    st.builds(StartRecording, NAMES, max_size=st.integers(1 << 16, 1 << 40)),
    st.builds(WeightsQuery, NAMES, st.booleans()),
    st.builds(HangQuery, NAMES, st.floats(0.01, 3600), st.floats(0, 86400)),
    st.builds(EventsQuery, st.integers(0, 2**60) | st.floats(0.001, 3e9)),
    st.builds(InspectQuery, st.none() | st.text(min_size=1), st.integers(0, 100_000)),
)  # fmt: skip


@given(QUESTIONS)
def test_a_query_survives_formatting_and_parsing(question: Query) -> None:
    assert from_query(type(question), to_query(question)) == question


@given(st.sampled_from(KINDS), st.lists(st.tuples(st.text(max_size=9) | st.sampled_from(["name", "top", "watch"]),
                                                  st.text(max_size=9))))  # fmt: skip
def test_any_query_string_is_parsed_or_refused(kind: type[Query], pairs: list[tuple[str, str]]) -> None:
    try:
        question = from_query(kind, pairs)
    except WrongQuestion:
        return
    assert {key for key, _ in to_query(question)} <= {key for key, _ in pairs}


def test_default_values_are_left_out_of_a_query_string() -> None:
    for kind in KINDS:
        assert to_query(kind()) == []
        assert from_query(kind, []) == kind()


@pytest.mark.parametrize(
    ("kind", "query", "text"),
    [
        (StatusQuery, "sort=self", "no parameter 'sort', expected name"),
        (BricksQuery, "sort=shelf", "sort is 'shelf', expected one of self, total, mean, "),
        (BricksQuery, "sort=self sort=p50", "sort is given more than once"),
        (BricksQuery, "sort=spread by=worker", "give one of them"),
        (BricksQuery, "top=0", "top is 0, expected a whole number of 1 or more"),
        (BricksQuery, "top=1.5", "top is '1.5', expected a whole number"),
        (BricksQuery, "name=", "name is '', expected names of workers or services"),
        (BricksQuery, "name=api name= name=", "name is '', expected names of workers or services"),
        (TreeQuery, "min=nan", "min is nan, expected a number of 0 to 100"),
        (HangQuery, "watch=2h", "watch is 7200.0, expected a duration of 10ms to 1h (with ms, s, m or h"),
        (HangQuery, "watch=1d", "watch is '1d', expected a duration"),
        (HangQuery, "watch=1e999h", "watch is '1e999h', expected a duration"),
        (
            BricksQuery,
            "over=72h",
            "over is 259200.0, expected a duration of 10s to 48h (with ms, s, m or h; without a unit",
        ),
        (BricksQuery, "over=ever", "over is 'ever', expected a duration of 10s to 48h"),
        (BricksQuery, "sort=max over=10s", "sort=max contradicts the period"),
        (StartRecording, "max-size=64MB", "max-size is '64MB', expected a size of 64KiB to 1TiB (such as 512KiB, 64M"),
        (StartRecording, "max-size=65536.5", "max-size is '65536.5', expected a size of 64KiB to 1TiB"),
        (StartRecording, "max-size=1K", "max-size is 1024, expected a size of 64KiB to 1TiB"),
        (
            EventsQuery,
            "since=5d",
            "since is '5d', expected a whole number of 0 or more, or a duration of 1ms to 876000h (w",
        ),
        (EventsQuery, "since=2.5", "since is '2.5', expected a whole number of 0 or more, or a duration"),
        (EventsQuery, "since=-1", "since is '-1', expected a whole number of 0 or more, or a duration"),
        (EventsQuery, "since=0s", "since is 0.0, expected a whole number of 0 or more, or a duration"),
        (TreeQuery, "layers=yes", "layers is 'yes', expected true or false"),
        (InspectQuery, "records=100001", "expected a whole number of 0 to 100000"),
    ],
)
def test_an_invalid_value_is_refused_with_the_expected_one(kind: type[Query], query: str, text: str) -> None:
    with pytest.raises(WrongQuestion) as refused:
        from_query(kind, [(key, value) for key, _, value in (pair.partition("=") for pair in query.split())])
    assert text in str(refused.value)


def test_events_are_asked_for_by_number_or_by_a_duration_with_a_unit() -> None:
    found = [from_query(EventsQuery, [("since", text)]).since for text in ("17", "5m", "1s", "0")]
    assert [(type(each), each) for each in found] == [(int, 17), (float, 300), (float, 1), (int, 0)]


def test_a_duration_without_a_unit_is_in_seconds() -> None:
    texts = ("500ms", "3s", "5m", "0.25h", "2.5", ".5", "1e2")
    assert [from_query(HangQuery, [("watch", text)]).watch for text in texts] == [0.5, 3, 300, 900, 2.5, 0.5, 100]


def test_a_duration_is_written_with_a_unit() -> None:
    assert to_query(HangQuery(watch=0.25, longer=5400.0)) == [("watch", "250ms"), ("longer", "90m")]


def test_a_period_is_a_duration_or_the_whole_time() -> None:
    texts = ("30s", "30", "0.5m", "1m", "60s", "start")
    assert [from_query(BricksQuery, [("over", text)]).over for text in texts] == [30, 30, 30, 60, 60, "start"]
    assert [to_query(BricksQuery(over=over)) for over in (60.0, 12.5, "start")] == [
        [("over", "60s")], [("over", "12.5s")], [],
    ]  # fmt: skip


def test_a_time_is_a_time_of_the_day_or_a_date_or_seconds_since_1970() -> None:
    texts = {"@12.5": 12.5, "1970-01-02T00:00Z": 86400.0, "1970-01-01T02:00:01+02:00": 1.0}
    assert {text: from_query(BricksQuery, [("at", text)]).at for text in texts} == texts
    assert to_query(BricksQuery(at=12.5, over=600.0)) == [("over", "600s"), ("at", "@12.5")]
    assert from_query(TreeQuery, to_query(TreeQuery(since=1.5, until=2.0))) == TreeQuery(since=1.5, until=2.0)
    now = time.time()
    for minutes in (1, 600, 1400):
        moment = time.localtime(now - 60 * minutes)
        found = from_query(BricksQuery, [("at", time.strftime("%H:%M", moment))]).at
        assert found is not None
        assert 0 <= now - 60 * minutes - found < 60


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone of Berlin: clocks are set from 02:00 to 03:00 in March, and from 03:00 to 02:00 in October."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-10-25T01:59", "2026-10-24T23:59Z"),
        ("2026-10-25T02:00", "2026-10-25T02:00:00+02:00 or 2026-10-25T02:00:00+01:00: this local time exists twice"),
        (
            "2026-10-25T02:59:59",
            "2026-10-25T02:59:59+01:00: this local time exists twice, because clocks were set back",
        ),
        ("2026-10-25T03:00", "2026-10-25T02:00Z"),
        ("2026-10-25T02:30+02:00", "2026-10-25T00:30Z"),
        ("2026-10-25T00:30Z", "2026-10-25T00:30Z"),
        ("2026-03-29T01:59", "2026-03-29T00:59Z"),
        ("2026-03-29T02:00", "2026-03-29T01:00:00+01:00 or 2026-03-29T03:00:00+02:00: this local time does not exist"),
        ("2026-03-29T03:00", "2026-03-29T01:00Z"),
    ],
)
@pytest.mark.usefixtures("berlin")
def test_a_local_time_is_unclear_only_in_the_hour_in_which_clocks_are_set(text: str, found: str) -> None:
    if "this local time" not in found:
        assert from_query(BricksQuery, [("at", text)]).at == parse_time(found)
        return
    with pytest.raises(WrongQuestion) as refused:
        from_query(BricksQuery, [("at", text)])
    assert f"at is {text!r}, expected " in str(refused.value)
    assert found in str(refused.value)


@pytest.mark.parametrize(
    ("now", "text", "found"),
    [
        ("2026-10-25T02:10+02:00", "02:10", "2026-10-25T02:10+02:00"),
        ("2026-10-25T02:10+02:00", "02:11", "2026-10-24T02:11+02:00"),
        ("2026-10-25T02:10+01:00", "02:11", "2026-10-25T02:11+02:00"),
        ("2026-10-25T02:10+01:00", "02:10", None),
        ("2026-10-26T02:09+01:00", "02:10", None),
        ("2026-10-26T02:10+01:00", "02:10", "2026-10-26T02:10+01:00"),
        ("2026-03-29T01:59+01:00", "02:30", "2026-03-28T02:30+01:00"),
        ("2026-03-29T03:00+02:00", "02:30", None),
        ("2026-03-30T02:29+02:00", "02:30", None),
        ("2026-03-30T02:30+02:00", "02:30", "2026-03-30T02:30+02:00"),
    ],
)
@pytest.mark.usefixtures("berlin")
def test_a_time_of_the_day_is_the_last_one_that_has_passed(now: str, text: str, found: str | None) -> None:
    if found is None:
        with pytest.raises(UnclearTimeError):
            parse_time(text, parse_time(now))
    else:
        assert parse_time(text, parse_time(now)) == parse_time(found)


@pytest.mark.parametrize(
    "text", ["", "25:00", "2:7", "noon", "@", "@nan", "@-1", "@1e300", "2026-13-01T00:00", "0001-01-01T00:00+14:00"]
)
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(WrongQuestion, match="expected a time"):
        from_query(BricksQuery, [("at", text)])


@pytest.mark.parametrize("period", [{"over": 61.0}, {"at": 5.0}, {"since": 5.0}])
@pytest.mark.parametrize("sort", ["max", "spread"])
def test_a_period_of_the_day_is_not_sorted_by_figures_that_it_lacks(sort: str, period: dict[str, Any]) -> None:
    with pytest.raises(WrongQuestion, match=f"sort={sort} contradicts the period"):
        BricksQuery(sort=sort, **period)


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ({"until": 5.0}, "'to' is given without 'from'"),
        ({"since": 5.0, "at": 6.0}, "'from' contradicts 'at'"),
        ({"since": 5.0, "over": 600.0}, "'from' contradicts 'over'"),
        ({"since": 5.0, "until": 5.0}, "'from' is 1970-01-01T00:00:05.000Z, expected a time before 'to'"),
    ],
)
@pytest.mark.parametrize("kind", [BricksQuery, RooflineQuery, StatusQuery, TreeQuery])
def test_times_that_contradict_each_other_are_refused(kind: Any, times: dict[str, float], why: str) -> None:
    with pytest.raises(WrongQuestion, match=why):
        kind(**times)


def test_a_size_has_a_unit_of_1024_or_is_in_bytes() -> None:
    texts = ("65536", "64K", "64KiB", "0.0625M", "65536B")
    assert {from_query(StartRecording, [("max-size", text)]).max_size for text in texts} == {1 << 16}
    assert to_query(StartRecording(max_size=64 << 20)) == [("max-size", "64MiB")]
    assert to_query(StartRecording(max_size=(1 << 16) + 1)) == [("max-size", "65537")]


def test_a_refusal_is_short_for_a_value_of_any_length() -> None:
    with pytest.raises(WrongQuestion) as refused:
        BricksQuery(sort="x" * 10_000)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line_and_query_strings_accept_the_same_values(kind: type[Query]) -> None:
    @click.command()
    @asks(kind, recorded=False)
    def verb(query: Query) -> Query:
        return query

    with_value = [
        key_of(name, parameter)
        for name, parameter in parameters(kind).items()
        if not parameter.positional and not isinstance(parameter, Switch)  # a flag has no value on a command line
    ]
    for key, text in product(with_value, TEXTS):
        try:
            queried: Any = from_query(kind, [(key, text)])
        except WrongQuestion:
            queried = None
        try:
            typed = verb.main([f"--{key}={text}"], standalone_mode=False)
        except (click.UsageError, WrongQuestion):
            typed = None
        assert typed == queried, (key, text)


def test_a_query_is_immutable() -> None:
    with pytest.raises(AttributeError, match="sort cannot be set"):
        BricksQuery().sort = "nonsense"  # type: ignore[misc]


def test_queries_with_the_same_values_are_equal() -> None:
    query = BricksQuery(("api",), sort="name")
    assert query == BricksQuery(names=("api",), sort="name")
    assert len({query, BricksQuery(("api",), "name")}) == 1
    assert query != BricksQuery(("api",))
    assert Forgetting(("api",)) != WorkersQuery(("api",))
    assert repr(WorkersQuery(("api",))) == "WorkersQuery(names=('api',))"


def test_a_query_can_be_copied_with_some_values_replaced() -> None:
    query = BricksQuery(("api",), sort="name")
    assert query.replaced(sort="total") == BricksQuery(("api",), sort="total")
    assert query == BricksQuery(("api",), sort="name")
    with pytest.raises(WrongQuestion, match="sort is 'x'"):
        query.replaced(sort="x")


def test_a_query_refuses_unknown_fields() -> None:
    with pytest.raises(TypeError, match="WorkersQuery has only the fields names"):
        WorkersQuery((), "extra")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="WorkersQuery has only the fields names"):
        WorkersQuery(sort="name")  # type: ignore[call-arg]


def test_a_query_needs_the_fields_that_have_no_default() -> None:
    with pytest.raises(TypeError, match="RecordedFile needs recording"):
        RecordedFile(number=0)  # type: ignore[call-arg]
