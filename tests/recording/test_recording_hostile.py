"""Hostile recordings: all checksums of the file are correct, but the contents are invalid."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tapes import Written, forged
from test_recording_files import STILL, chunks, recorded
from verbs import started

from brickd.cli import main
from brickd.errors import BrickdError, Exit
from brickd.query.queries import (
    BricksQuery,
    CoverageQuery,
    EventsQuery,
    HangQuery,
    InspectQuery,
    StatusQuery,
    StragglersQuery,
    TreeQuery,
    WeightsQuery,
    WorkersQuery,
)
from brickd.recording.replay import Replay, opened
from brickd.shm import _reader
from brickd.views import bricks, coverage, events, hang, inspect, status, stragglers, tree, weights, workers

VERBS = (
    ("status",),
    ("status", "--over", "10s"),
    ("workers",),
    ("bricks", "--by", "layer"),
    ("tree", "--layers"),
    ("stragglers",),
    ("coverage",),
    ("weights", "--all"),
    ("inspect", "-n", "1000", "api/0"),
    ("hang", "--longer", "0"),
    ("events",),
)
FORMATS = ("table", "json", "jsonl", "csv")

WEIGHTS = "brick.weights({'layers.0.experts.1.w': b'1', 'norm': b'2'})\n"
PROGRAM = WEIGHTS + "with brick.span('a'), brick.layer(3), brick.span('b'): brick.checksum('k', b''); pause()"

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([-1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**400])
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["\ud800", "\x1b[2J", "=1+1", "\n", "x" * 300]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
BODY = (
    st.binary(max_size=200)
    | ANYTHING.map(json.dumps).map(str.encode)
    | st.sampled_from(
        [b"[" * 100_000, b'{"names":' * 5_000, b"9" * 5_000, b"NaN", b'"\\ud800"', b"\xff\xfe", b"{}", b"[]"]
    )
)
CHUNK = st.tuples(st.integers(2, _reader.CHUNK_KINDS) | st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), BODY)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every list or object of a document, with each of its keys."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in members:
        yield value, key
        yield from places(each)


def answers(world: Replay) -> Iterator[Callable[[], object]]:
    """Yield every view of a recording."""
    yield lambda: status.answer(world, StatusQuery())
    yield lambda: status.answer(world, StatusQuery(over=10.0))
    yield lambda: workers.answer(world, WorkersQuery())
    yield lambda: bricks.answer(world, BricksQuery(by="layer"))
    yield lambda: tree.answer(world, TreeQuery(layers=True))
    yield lambda: stragglers.answer(world, StragglersQuery())
    yield lambda: coverage.answer(world, CoverageQuery())
    yield lambda: weights.answer(world, WeightsQuery(all=True))
    yield lambda: inspect.answer(world, InspectQuery("api/0"))
    yield lambda: hang.of_recording(world, HangQuery())
    yield lambda: events.answer(world, EventsQuery())
    yield lambda: json.dumps([world.document(), world.words()])


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Written]]:
    """Return the chunks of a valid recording of one worker."""
    from conftest import workers as starting
    from sandbox import apart

    with apart(), starting() as worker:
        started(worker, PROGRAM, **STILL)
        path = tmp_path_factory.mktemp("honest") / "run.brick"
        recorded(path)
        found = [(kind, at_ns, body) for kind, _, at_ns, body in chunks(path)]
        snapshot = next(json.loads(body) for kind, _, body in found if kind == _reader.CHUNK_SNAPSHOT)
        uuid = snapshot["workers"][0]["reading"]["header"]["uuid"]
        yield [(_reader.CHUNK_WORKERS, 1, json.dumps({uuid: 1}).encode()), *found]


def verb(*arguments: str) -> tuple[int, str, str]:
    """Run a verb in this process; return exit code, stdout and stderr."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["brickd", *arguments])
        code = main()
    reported = [each.buffer.getvalue().decode("utf-8") for each in (out, err) if isinstance(each.buffer, io.BytesIO)]
    return code, reported[0], reported[1]


def with_changed_value(body: bytes, data: st.DataObject) -> bytes:
    """Return the body after one value in it is replaced by another."""
    line, end, rest = body.partition(b"\n")
    value = json.loads(line)
    found = list(places(value))
    if rest and data.draw(st.booleans()):
        rest = data.draw(st.sampled_from([rest[:-1], rest + b"?", rest[:-4] + b"\xff" * 4, bytes(len(rest))]))
    elif found:
        where, key = data.draw(st.sampled_from(found))
        where[key] = data.draw(ANYTHING)
    return json.dumps(value).encode() + end + rest


@pytest.mark.ci
@given(st.data())
def test_on_any_recording_verbs_answer_or_give_the_reason(
    tmp_path_factory: pytest.TempPathFactory, honest: list[Written], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("made_up") / "run.brick"
    made_up = list(honest)
    for _ in range(data.draw(st.integers(0, 3))):
        number = data.draw(st.integers(0, len(honest) - 1))
        kind, at_ns, body = made_up[number]
        made_up[number] = kind, at_ns, with_changed_value(body, data)
    for each in data.draw(st.lists(CHUNK, max_size=3)):
        made_up.insert(data.draw(st.integers(0, len(made_up))), each)
    path.write_bytes(forged(made_up))
    with opened([str(path)]) as world:
        for answer in answers(world):
            with suppress(BrickdError):
                answer()
    code, _, reported = verb(*data.draw(st.sampled_from(VERBS)), "-o", data.draw(st.sampled_from(FORMATS)), str(path))
    assert code in (Exit.OK, Exit.DIFFERS, Exit.TROUBLE, Exit.NO_WORKER, Exit.NOT_COMPARABLE)
    assert "defect" not in reported


def changed(body: bytes, **members: Any) -> bytes:
    return json.dumps(json.loads(body) | members).encode()


def with_reading(body: bytes, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes:
    (worker,) = json.loads(body)["workers"]
    return changed(body, workers=[worker | {"reading": worker["reading"] | change(worker["reading"])}])


# Each row names the kind of a chunk, how the body of the chunk is changed, and the message that this causes.
ROOMY: dict[str, tuple[int, Callable[[bytes], bytes], str]] = {
    "lists": (_reader.CHUNK_SNAPSHOT, lambda _: b"[" + b"[]," * (1 << 22) + b"0]", "at most 4194304 lists and objects"),
    "words": (_reader.CHUNK_SNAPSHOT, lambda body: changed(body, words=[""] * 2000), "at most 1024"),
    "refused": (_reader.CHUNK_SNAPSHOT, lambda body: changed(body, refused=[["", "", 0]] * 70_000), "at most 65536"),
    "digits": (_reader.CHUNK_SNAPSHOT, lambda body: changed(body, now_ns="9" * 100_000), "a whole number"),
    "lanes": (
        _reader.CHUNK_SNAPSHOT,
        lambda body: with_reading(body, lambda reading: {"lanes": reading["lanes"] * 2}),
        "each lane once",
    ),
    "key": (_reader.CHUNK_SNAPSHOT, lambda body: with_reading(body, lambda _: {"names": "x" * 100_000}), "KeyError"),
    "tables": (
        _reader.CHUNK_TABLES,
        lambda body: changed(body, names={str(number): [] for number in range(70_000)}),
        "at most 65536",
    ),
    "numbers": (_reader.CHUNK_WORKERS, lambda _: b'{"0":0' + b',"1":1' * (1 << 20) + b"}", "at most 4194304 bytes"),
    "event": (
        _reader.CHUNK_EVENTS,
        lambda _: json.dumps([1, 1, "looked", "x" * 70_000]).encode(),
        "at most 65536 bytes",
    ),
    "beginning": (
        _reader.CHUNK_BEGINNING,
        lambda body: changed(body, host="x" * (1 << 20)),
        "at most 1048576 bytes",
    ),
}


@pytest.mark.parametrize("what", ROOMY)
def test_oversized_chunks_are_damaged_and_reported_briefly(honest: list[Written], tmp_path: Path, what: str) -> None:
    kind, change, wanted = ROOMY[what]
    like = next(body for each, _, body in honest if each == kind)
    last = max(number for number, each in enumerate(honest) if each[0] == _reader.CHUNK_SNAPSHOT)
    at = len(honest) if kind == _reader.CHUNK_SNAPSHOT else last
    path = tmp_path / "run.brick"
    path.write_bytes(forged([*honest[:at], (kind, 1, change(like)), *honest[at:]]))
    with opened([str(path)]) as world:
        assert [worker.name for worker in world.survey().workers] == ["api/0"]
        (damage,) = world.document()["files"][0]["damages"]
    assert wanted in damage["why"]
    assert len(damage["why"]) < 400


@pytest.mark.parametrize(
    "change", [lambda body: body[:-1], lambda body: b"", lambda body: b"{}\n", lambda body: b"[" * 9]
)
def test_inconsistent_weights_are_damaged_and_the_rest_is_shown(
    honest: list[Written], tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "run.brick"

    def known(chunks: list[Written]) -> tuple[int, int]:
        """Return the number of known tensors, and the number of damaged places."""
        path.write_bytes(forged(chunks))
        with opened([str(path)]) as world:
            (worker,) = weights.answer(world, WeightsQuery()).document["workers"]
            return worker["tensors"], len(world.document()["files"][0]["damages"])

    assert known(honest) == (2, 0)
    spoiled = [(kind, at, change(body) if kind == _reader.CHUNK_WEIGHTS else body) for kind, at, body in honest]
    assert known(spoiled) == (0, 1)


def test_weights_of_a_worker_of_another_service_are_ignored(honest: list[Written], tmp_path: Path) -> None:
    path = tmp_path / "run.brick"
    kind = _reader.CHUNK_WEIGHTS
    path.write_bytes(
        forged([(each, at, body.replace(b'"api"', b'"ipa"') if each == kind else body) for each, at, body in honest])
    )
    with opened([str(path)]) as world:
        assert weights.answer(world, WeightsQuery()).document["workers"][0]["tensors"] == 0
