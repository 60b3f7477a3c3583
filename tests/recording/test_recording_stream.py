"""A recording as a stream: it runs until its reader disconnects or the daemon ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_recording_files import Machine

from brickd.api import event_stream
from brickd.errors import BrickdError
from brickd.query.orders import StartRecording
from brickd.recording.session import Recorder


@pytest.fixture
def recorder(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """Start a recording. It sends its progress when the test wakes it, or else after an hour."""
    monkeypatch.setattr(event_stream, "_PROGRESS_SECONDS", 3600)
    recorder = Recorder(StartRecording(), tmp_path / "run.brick", Machine())
    yield recorder
    recorder.end("asked")
    recorder.join()


def parsed(event: bytes) -> tuple[str, Any]:
    name, data, *_ = event.decode().split("\n")
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def run(reading: Any) -> Any:
    """Run the command for at most two seconds; a command that takes longer waits for something that never comes."""

    async def bounded() -> Any:
        return await asyncio.wait_for(reading, 2)

    return asyncio.run(bounded())


async def names(parts: AsyncIterator[bytes]) -> list[tuple[str, str | None]]:
    return [(name, document.get("why")) for name, document in [parsed(each) async for each in parts]]


def test_ending_a_recording_wakes_its_reader_with_the_final_state(recorder: Recorder) -> None:
    async def begin() -> Recorder:
        return recorder

    async def read() -> list[tuple[str, str | None]]:
        parts = event_stream.recording(event_stream.Reader(), begin)
        begun = parsed(await anext(parts))
        recorder.end("asked")
        return [(begun[0], begun[1]["why"]), *await names(parts)]

    first, *others, last = run(read())
    assert (first, last) == (("begun", None), ("done", "asked"))
    assert others in ([], [("progress", "asked")]), "the recording may end before its progress is sent"


def test_each_wake_of_the_reader_sends_the_progress_once(recorder: Recorder) -> None:
    async def begin() -> Recorder:
        return recorder

    async def read() -> list[str]:
        reader = event_stream.Reader()
        parts = event_stream.recording(reader, begin)
        seen = [parsed(await anext(parts))[0]]
        for _ in range(2):
            reader.woken.set()
            seen.append(parsed(await anext(parts))[0])
        further = asyncio.ensure_future(anext(parts))
        for _ in range(100):
            await asyncio.sleep(0)
        seen.append("waits" if not further.done() else "goes on")
        recorder.end("asked")
        seen.append(parsed(await further)[0])
        await parts.aclose()
        return seen

    assert run(read()) == ["begun", "progress", "progress", "waits", "progress"]


def test_a_daemon_that_ends_ends_the_recording_and_tells_its_reader(recorder: Recorder) -> None:
    async def begin() -> Recorder:
        return recorder

    async def read() -> list[tuple[str, str | None]]:
        reader = event_stream.Reader()
        parts = event_stream.recording(reader, begin)
        await anext(parts)
        reader.end()
        return await names(parts)

    reported = run(read())
    assert {name for name, _ in reported[:-1]} == {"progress"}
    assert reported[-1] == ("done", "daemon_ended")


def test_a_reader_that_leaves_ends_the_recording(recorder: Recorder) -> None:
    async def begin() -> Recorder:
        return recorder

    async def read() -> None:
        parts = event_stream.recording(event_stream.Reader(), begin)
        await anext(parts)
        await parts.aclose()

    run(read())
    assert recorder.over.wait(1)
    assert recorder.document()["why"] == "left"


@pytest.mark.parametrize("fails", [False, True])
def test_a_reader_that_leaves_during_the_start_ends_the_started_recording(recorder: Recorder, *, fails: bool) -> None:
    async def read() -> list[dict[str, Any]]:
        may, troubles = asyncio.Event(), list[dict[str, Any]]()
        asyncio.get_running_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))

        async def begin() -> Recorder:
            await may.wait()
            if fails:
                raise BrickdError("another one is made")
            return recorder

        parts = event_stream.recording(event_stream.Reader(), begin)
        waiting = asyncio.ensure_future(anext(parts))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        may.set()
        for _ in range(5):
            await asyncio.sleep(0)
        return troubles

    assert run(read()) == []
    if fails:
        assert not recorder.over.is_set()
        recorder.end("asked")
    assert recorder.over.wait(1)
    assert recorder.document()["why"] == ("asked" if fails else "left")


def test_a_recording_that_cannot_start_sends_only_the_reason() -> None:
    async def begin() -> Recorder:
        raise BrickdError("another one is made")

    async def read() -> list[tuple[str, Any]]:
        return [parsed(each) async for each in event_stream.recording(event_stream.Reader(), begin)]

    assert run(read()) == [("error", {"error": {"kind": "trouble", "message": "another one is made"}})]
