"""The limits of the API, each tested exactly at the limit and one above the limit."""

from __future__ import annotations

import asyncio
import gc
import os
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from serving import answer, ask, connected, request, rest, serving
from starlette.exceptions import HTTPException
from test_api_clients import PATIENT, closed

from brickd.api import event_stream
from brickd.api.connection_limits import Limits
from brickd.api.error_responses import failure
from brickd.api.peer_credentials import Role
from brickd.api.responses import FileResponse, Reply, in_pieces
from brickd.errors import BrickdError, NoSuchSource, NoSuchWorker, NotPermitted, SegmentRefused, WrongQuestion

PIECE = 64 * 1024
FILE_PIECE = 256 * 1024


@pytest.fixture
def path(prefix: str, tmp_path: Path) -> Path:
    return tmp_path / "socket"


# ---- requests


def test_a_head_of_the_maximum_size_is_answered_and_a_larger_one_refused(path: Path) -> None:
    """The size of the head is the sum of the bytes of the path, the query, and the names and values of the headers."""
    spelled = len("/v1/statusname=api") + len("hostbrickd") + len("x")
    with serving(path, Limits(head_bytes=300)):
        for more, status in ((0, 404), (1, 431)):
            reported = ask(path, "/v1/status?name=api", None, f"x: {(300 - spelled + more) * 'y'}")
            assert (reported.status, reported.document["error"]["kind"]) == (
                status, "no_such_worker" if status == 404 else "too_large",
            )  # fmt: skip


def test_a_body_of_the_maximum_size_is_read_and_a_larger_one_refused(path: Path) -> None:
    with serving(path, Limits(body_bytes=100)):
        kinds = [ask(path, "/v1/set", size * b"x").document["error"]["kind"] for size in (100, 101)]
    assert kinds == ["wrong_question", "too_large"]


# ---- clients


def test_one_client_above_the_limit_closes_the_oldest(path: Path) -> None:
    with serving(path, Limits(connections=4, arrive_seconds=PATIENT)), ExitStack() as clients:
        silent = [clients.enter_context(connected(path)) for _ in range(3)]
        assert ask(path, "/v1").status == 200  # this fourth client is accepted after the other three
        assert not any(closed(client, 0) for client in silent)
        silent.append(clients.enter_context(connected(path)))
        assert ask(path, "/v1").status == 200
        assert [closed(client, 0) for client in silent] == [True, False, False, False]


@pytest.mark.parametrize(
    ("clients", "connections", "most"), [(8, 8, 4), (31, 31, 15), (32, 32, 16), (100, 100, 16), (101, 100, 16)]
)
def test_streams_take_half_of_the_connections_and_at_most_sixteen(clients: int, connections: int, most: int) -> None:
    limits = Limits.of(clients)
    assert (limits.connections, limits.streams) == (connections, most)


def test_clients_with_the_read_role_have_at_most_half_of_the_streams() -> None:
    for most, readers in ((4, 2), (5, 2), (1, 0)):
        open_ = event_stream.Streams(Limits(streams=most))
        for _ in range(readers):
            open_.enter(event_stream.Reader(), Role.READ)
        with pytest.raises(HTTPException, match=f"{readers} streams are open, the limit is {readers} "):
            open_.enter(event_stream.Reader(), Role.READ)
        for _ in range(most - readers):
            open_.enter(event_stream.Reader(), Role.CONTROL)
        with pytest.raises(HTTPException, match=f"{most} streams are open, the limit is {most} "):
            open_.enter(event_stream.Reader(), Role.CONTROL)


def test_a_stream_that_starts_after_all_were_ended_ends_at_once() -> None:
    open_, before, after, left = (
        event_stream.Streams(Limits(streams=4)),
        event_stream.Reader(),
        event_stream.Reader(),
        event_stream.Reader(),
    )
    open_.enter(before, Role.CONTROL)
    open_.enter(left, Role.CONTROL)
    open_.leave(left)
    open_.close()
    open_.enter(after, Role.CONTROL)
    assert [(each.ended, each.woken.is_set()) for each in (before, after, left)] == [(True, True)] * 2 + [
        (False, False)
    ]


# ---- answers


def sent(sending: Callable[[Callable[[Any], Coroutine[Any, Any, None]]], Coroutine[Any, Any, None]]) -> list[Any]:
    """Return the messages that `sending` sends."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    asyncio.run(sending(send))
    return messages


@pytest.mark.parametrize(
    ("size", "pieces"), [(0, [0]), (1, [1]), (PIECE, [PIECE]), (PIECE + 1, [PIECE, 1]), (2 * PIECE, [PIECE, PIECE])]
)
@pytest.mark.parametrize("more", [False, True])
def test_a_body_is_sent_in_chunks_and_the_last_one_is_marked(size: int, pieces: list[int], *, more: bool) -> None:
    body = os.urandom(size)
    messages = sent(lambda send: in_pieces(send, body, more=more))
    assert [len(each["body"]) for each in messages] == pieces
    assert b"".join(each["body"] for each in messages) == body
    assert [each["more_body"] for each in messages] == [True] * (len(pieces) - 1) + [more]


def test_a_reply_is_uncacheable_json_and_closes_its_connection() -> None:
    first, last = sent(lambda send: Reply(b"{}\n")({}, None, send))  # type: ignore[arg-type]
    assert (first["status"], dict(first["headers"])) == (
        200,
        {
            b"connection": b"close",
            b"cache-control": b"no-store",
            b"x-content-type-options": b"nosniff",
            b"cross-origin-resource-policy": b"same-origin",
            b"content-type": b"application/json",
            b"content-length": b"3",
        },
    )
    assert (last["body"], last["more_body"]) == (b"{}\n", False)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NoSuchWorker("no"), 404),
        (NotPermitted("no"), 403),
        (SegmentRefused("/dev/shm/x", "no"), 409),
        (WrongQuestion("no"), 400),
        (NoSuchSource("no"), 400),
        (BrickdError("no"), 400),
    ],
)
def test_each_error_has_its_status_code(error: BrickdError, status: int) -> None:
    assert failure(error).status_code == status


@pytest.mark.parametrize(
    ("size", "pieces"),
    [
        (0, []),
        (1, [1]),
        (FILE_PIECE, [FILE_PIECE]),
        (FILE_PIECE + 1, [FILE_PIECE, 1]),
    ],
)
@pytest.mark.parametrize("grown", [0, 7])
def test_a_file_is_sent_in_chunks_with_its_original_length(
    tmp_path: Path, size: int, pieces: list[int], grown: int
) -> None:
    first, *rest_ = whole(tmp_path, size, size + grown)
    assert dict(first["headers"])[b"content-length"] == b"%d" % size
    assert [len(each["body"]) for each in rest_] == pieces
    assert [each["more_body"] for each in rest_] == [True] * (len(pieces) - 1) + [False] * bool(pieces)


def test_a_file_that_shrinks_while_sent_is_not_reported_as_complete(tmp_path: Path) -> None:
    messages = whole(tmp_path, FILE_PIECE + 9, FILE_PIECE)
    assert [(len(each["body"]), each["more_body"]) for each in messages[1:]] == [(FILE_PIECE, True)]


def whole(folder: Path, size: int, then: int) -> list[Any]:
    """Return the messages that are sent for a file whose size changes at the same time."""
    file = folder / "file"
    file.write_bytes(bytes(size))

    async def here(function: Callable[..., bytes], *arguments: Any) -> bytes:
        return function(*arguments)

    fd = os.open(file, os.O_RDONLY)
    try:
        answering = FileResponse(fd, here)
        os.truncate(file, then)
        return sent(answering.stream_response)
    finally:
        os.close(fd)


# ---- streams


@pytest.mark.parametrize(
    ("takes", "missed"),
    [(0.0, []), (1.0, []), (2.0, []), (2.5, [1]), (3.5, [1]), (4.0, [2]), (7.0, [3])],
)
def test_a_late_status_of_a_stream_counts_the_missed_ones(takes: float, missed: list[int]) -> None:
    """A status is due every two seconds, and a late status does not shift this schedule.

    The test replaces the clock by one that moves forward at each call of `document`.
    """

    async def received() -> list[bytes]:
        loop = asyncio.get_running_loop()
        now, taking = [1000.0], iter([takes, 1.0, 1.0])
        loop.time = lambda: now[0]  # type: ignore[method-assign]
        reader = event_stream.Reader()
        reader.woken.set()  # so that the stream does not wait

        async def document() -> bytes:
            now[0] += next(taking)
            return b"{}\n"

        return [each async for each in first(event_stream.again(reader, 2.0, "status", document), 3 + len(missed))]

    status = b"event: status\ndata: {}\n\n"
    assert asyncio.run(received()) == [
        status, *(b'event: missed\ndata: {"missed":%d}\n\n' % each for each in missed), status, status,
    ]  # fmt: skip


async def first(parts: AsyncGenerator[bytes], count: int) -> AsyncGenerator[bytes]:
    """Return the first `count` parts of a stream."""
    for _ in range(count):
        yield await anext(parts)
    await parts.aclose()


@pytest.mark.parametrize(("seconds", "status"), [("0.1", 200), ("0.09", 400), ("3600", 200), ("3600.1", 400)])
def test_a_status_interval_is_a_tenth_of_a_second_to_an_hour(path: Path, seconds: str, status: int) -> None:
    with serving(path), connected(path) as client:
        client.sendall(request(f"/v1/status/stream?seconds={seconds}"))
        assert int(client.recv(12)[9:]) == status


# ---- one request


def test_a_client_that_continues_after_its_refusal_gets_one_reply(path: Path) -> None:
    with serving(path, Limits(arrive_seconds=0.1)), connected(path) as client:
        client.sendall(b"nonsense\r\n\r\nmore\r\n\r\n")
        client.sendall(request("/v1"))
        reported = rest(client)
    assert reported.count(b"HTTP/1.1 ") == 1
    assert answer(reported).headers["connection"] == "close"


def test_streams_with_the_same_question_share_a_document_while_it_is_new() -> None:
    built: list[str] = []

    async def run() -> None:
        shared, go = event_stream.SharedDocuments(), asyncio.Event()

        def build(name: str) -> Callable[[], Coroutine[Any, Any, bytes]]:
            async def document() -> bytes:
                built.append(name)
                await go.wait()
                return name.encode()

            return document

        first = [asyncio.ensure_future(shared.get("a", 60, build("first"))) for _ in range(3)]
        other = asyncio.ensure_future(shared.get("b", 60, build("other")))
        await asyncio.sleep(0)
        first[0].cancel()  # a reader leaves
        go.set()
        assert await asyncio.gather(*first[1:], other) == [b"first", b"first", b"other"]
        assert await shared.get("a", 60, build("unused")) == b"first"
        assert await shared.get("a", -1, build("second")) == b"second"

    asyncio.run(run())
    assert built == ["first", "other", "second"]


def test_an_error_reaches_each_reader_and_is_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        shared, go = event_stream.SharedDocuments(), asyncio.Event()

        async def fails() -> bytes:
            await go.wait()
            raise NoSuchWorker("gone")

        left, stays = (asyncio.ensure_future(shared.get(each, 60, fails)) for each in "ab")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        left.cancel()
        go.set()
        for each in (stays, shared.get("b", 60, fails)):
            with pytest.raises(NoSuchWorker):
                await each

    asyncio.run(run())
    gc.collect()
    assert capfd.readouterr() == ("", "")


class Question:
    """Something that can be asked, and whose end can be seen."""


def test_documents_that_nobody_needs_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def document() -> bytes:
        return b""

    async def run() -> None:
        shared, question = event_stream.SharedDocuments(), Question()
        await shared.get(question, 60, document)
        seen = weakref.ref(question)
        del question
        await shared.get("another", 60, document)
        assert seen() is not None, "the document is still new"
        monkeypatch.setattr(event_stream, "_SHARED_SECONDS", -1)
        await shared.get("a third", 60, document)
        gc.collect()
        assert seen() is None

    asyncio.run(run())


def test_a_shared_document_is_older_than_no_interval() -> None:
    assert [event_stream.shared_age(each) for each in (0.1, 0.5, 1, 2, 3600)] == [0.05, 0.25, 0.5, 0.5, 0.5]
