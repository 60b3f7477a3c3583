"""The application: the endpoints and their answers.

Owns: the list of endpoints, and the threads that build views. Must not know: sockets, tokens, web pages, how a daemon
gets its data. Invariant: a call that may block runs in one of a few threads, never in the event loop.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from brickd.api import event_stream
from brickd.api.backend import Served
from brickd.api.connection_limits import Limits
from brickd.api.endpoint import Endpoint
from brickd.api.error_responses import HANDLERS
from brickd.api.peer_credentials import Role
from brickd.api.responses import FileResponse, Reply, encoded
from brickd.client import protocol
from brickd.datasources.world import World
from brickd.query import queries
from brickd.query.orders import (
    CanaryRoundQuery,
    CanaryRunning,
    EndRecording,
    Forgetting,
    RecordedFile,
    Rescanning,
    Setting,
    Silencing,
    StartRecording,
    Wish,
)
from brickd.query.parameters import Duration
from brickd.query.queries import (
    ACTIVE_FOR,
    EventsQuery,
    FingerprintsQuery,
    HangQuery,
    InspectQuery,
    StatusQuery,
)
from brickd.query.query import ABOUT_WORKERS, LIVE, Asked, Query, given
from brickd.query.verbs import VERBS
from brickd.recording.library import Shelf
from brickd.recording.session import Recorder
from brickd.views import events, fingerprints, hang, inspect, status
from brickd.views.common import Answer, begun
from brickd.web.page import PagePlace

Given = ParamSpec("Given")
Result = TypeVar("Result")


class NoParameters(Query):
    """A query without parameters."""


class StreamQuery(Query):
    """The parameters of the stream of statuses: the workers, and the interval."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, default=())
    seconds: float = given(Duration(0.1, 3600, "Send the status again after this time."), default=2.0)
    over: float | str | None = given(LIVE, default=None)  # a long period would be decoded at each refresh
    active_for: float | None = given(ACTIVE_FOR, default=None)


class Application:
    """Answers the requests to a daemon. The ASGI application is `asgi`."""

    def __init__(self, served: Served, limits: Limits, page: PagePlace | None = None) -> None:
        self._served, self._page = served, page
        self._threads = ThreadPoolExecutor(limits.threads, "brickd-api")
        self._streams = event_stream.Streams(limits)
        self._statuses = event_stream.SharedDocuments()
        self._endpoints = [
            Endpoint("GET", "", NoParameters, self._index, "The daemon, and all paths of the API."),
            *map(self._verb, (name for name, verb in VERBS.items() if verb.query and verb.served)),
            self._view(
                protocol.FINGERPRINTS,
                FingerprintsQuery,
                fingerprints.answer,
                "The fingerprints that the daemon keeps.",
            ),
            self._control("/weights/rescan", Rescanning, self._rescan, "Make workers read their parameters again."),
            self._control("/canary/run", CanaryRunning, self._run_canaries, "Make workers run canaries."),
            Endpoint("GET", "/canary", CanaryRoundQuery, self._canary_round, "The results of canaries."),
            self._view(
                "inspect/{name:path}", InspectQuery, inspect.answer, "Like /inspect, with the name in the path."
            ),
            Endpoint(
                "GET",
                "/events/stream",
                EventsQuery,
                self._events_stream,
                "The events, then each new one as it happens.",
            ),
            Endpoint("GET", "/status/stream", StreamQuery, self._status_stream, "The status, repeatedly."),
            self._control("/set", Setting, self._set, "Set what the workers of a service record, or read the setting."),
            self._control("/silence", Silencing, self._silence, "Silence a problem, or list the silenced ones."),
            self._control("/notify/test", NoParameters, self._test_notify, "Send a test to the targets of alarms."),
            self._control("/forget", Forgetting, self._forget, "Forget the totals of workers that ended or died."),
            self._control(
                "/record", StartRecording, self._record, "Record until the client disconnects, or for a given time."
            ),
            self._control("/record/end", EndRecording, self._end_recording, "End a recording."),
            Endpoint(
                "GET",
                "/record",
                NoParameters,
                self._recordings,
                "The recordings that were not fetched yet, and those of the flight recorder.",
            ),
            Endpoint(
                "GET",
                "/record/file",
                RecordedFile,
                self._recorded_file,
                "One file of a recording, byte for byte.",
                Role.CONTROL,
            ),
            self._control(
                "/record/remove", RecordedFile, self._remove_recorded_file, "Remove one file of a recording."
            ),
            self._control("/down", NoParameters, self._down, "Stop the daemon."),
        ]
        prefix = served.daemon().prefix
        self._routes = Starlette(
            routes=[endpoint.route(limits, prefix) for endpoint in self._endpoints],
            exception_handlers=HANDLERS,
        )
        self._routes.router.redirect_slashes = False

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a client with the role in its state."""
        await self._routes(scope, receive, send)

    def end_streams(self) -> None:
        """End all streams, because a stream does not end by itself."""
        self._streams.close()

    def close(self) -> None:
        """Build no more views."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    # ---- answers

    def _view(self, path: str, query: type[Asked], answer: Callable[[World, Asked], Answer], help: str) -> Endpoint:
        async def answered(asked: Asked) -> Response:
            return Reply(await self._in_thread(lambda: _with_words(answer(self._served, asked))))

        return Endpoint("GET", f"/{path}", query, answered, help)

    def _verb(self, name: str) -> Endpoint:
        """Return the endpoint for the query of a verb. The answer usually comes from the view with the verb's name."""
        query: type[Query] = getattr(queries, VERBS[name].query)
        others: dict[str, Callable[[Any], Awaitable[Response]]] = {"hang": self._hang, "events": self._events}
        if name in others:
            return Endpoint("GET", f"/{name}", query, others[name], VERBS[name].help)
        view = importlib.import_module(f"brickd.views.{name}")
        return self._view(name, query, view.answer, VERBS[name].help)

    def _control(
        self, path: str, order: type[Query], answer: Callable[[Any], Awaitable[Response]], help: str
    ) -> Endpoint:
        return Endpoint("POST", path, order, answer, help, Role.CONTROL)

    async def _hang(self, query: HangQuery) -> Response:
        before = await self._in_thread(hang.look, self._served, query)
        if before.workers:
            await asyncio.sleep(query.watch)
        return Reply(await self._in_thread(lambda: _with_words(hang.answer(self._served, query, before))))

    async def _events(self, query: EventsQuery) -> Response:
        return Reply(_with_words(events.answer(self._served, query)))

    async def _events_stream(self, query: EventsQuery) -> Response:
        log = self._served.events
        return event_stream.EventStream(self._streams, lambda reader: event_stream.events(reader, log, query.since))

    async def _status_stream(self, query: StreamQuery) -> Response:
        asked = StatusQuery(query.names, query.over, query.active_for)

        async def build() -> bytes:
            return await self._in_thread(lambda: _with_words(status.answer(self._served, asked)))

        async def document() -> bytes:
            return await self._statuses.get(asked, event_stream.shared_age(query.seconds), build)

        await document()  # a query that has no answer is refused before the stream begins
        return event_stream.EventStream(
            self._streams, lambda reader: event_stream.again(reader, query.seconds, "status", document)
        )

    async def _index(self, _: NoParameters) -> Response:
        listed = [endpoint.document() for endpoint in self._endpoints]
        page = None if self._page is None else self._page.document()
        return self._done(**self._served.daemon().document(), page=page, endpoints=listed)

    async def _set(self, order: Setting) -> Response:
        if order.service is None:
            thresholds = await self._in_thread(self._served.orders.set_thresholds, order)
            of_service: dict[str, Any] = dict.fromkeys((*Wish().document(), "workers", "deaf"))
        else:
            wish, workers, deaf = await self._in_thread(self._served.orders.set, order)
            thresholds = self._served.orders.thresholds
            of_service = {**wish.document(), "workers": workers, "deaf": deaf}
        return self._done(service=order.service, **of_service, thresholds=thresholds.documents())

    async def _silence(self, order: Silencing) -> Response:
        return self._done(id=order.id, silenced=await self._in_thread(self._served.silence, order))

    async def _test_notify(self, _: NoParameters) -> Response:
        return self._done(targets=await self._in_thread(self._served.test_notify))

    async def _forget(self, order: Forgetting) -> Response:
        return self._done(forgotten=await self._in_thread(self._served.orders.forget, order))

    async def _rescan(self, order: Rescanning) -> Response:
        return self._done(workers=await self._in_thread(self._served.orders.rescan, order))

    async def _run_canaries(self, order: CanaryRunning) -> Response:
        return self._done(**await self._in_thread(self._served.orders.run_canaries, order))

    async def _canary_round(self, query: CanaryRoundQuery) -> Response:
        return self._done(**await self._in_thread(self._served.orders.canary_round, query))

    async def _record(self, order: StartRecording) -> Response:
        def begin() -> Awaitable[Recorder]:
            return self._in_thread(self._served.record, order)

        return event_stream.EventStream(self._streams, lambda reader: event_stream.recording(reader, begin))

    async def _end_recording(self, order: EndRecording) -> Response:
        await self._in_thread(self._served.end_recording, order)
        return self._done(recording=order.recording)

    async def _recordings(self, _: NoParameters) -> Response:
        found = await self._in_thread(self._served.shelf.all)
        flights = await self._in_thread(self._served.flights.all)
        return self._done(
            recordings=[each.document() for each in found], flight_recordings=[each.document() for each in flights]
        )

    async def _recorded_file(self, asked: RecordedFile) -> Response:
        return FileResponse(
            await self._in_thread(lambda: self._shelf_of(asked).open(asked.recording, asked.number)), self._in_thread
        )

    async def _remove_recorded_file(self, asked: RecordedFile) -> Response:
        await self._in_thread(lambda: self._shelf_of(asked).remove(asked.recording, asked.number))
        return self._done(recording=asked.recording, number=asked.number)

    def _shelf_of(self, asked: RecordedFile) -> Shelf:
        flights = self._served.flights
        return flights if flights.has(asked.recording) else self._served.shelf

    async def _down(self, _: NoParameters) -> Response:
        self._served.down()
        return self._done(pid=self._served.daemon().pid)

    def _done(self, **document: Any) -> Reply:
        return Reply(encoded({**begun(self._served), **document}))

    async def _in_thread(
        self, function: Callable[Given, Result], *arguments: Given.args, **more: Given.kwargs
    ) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*arguments, **more))


def _with_words(answer: Answer) -> bytes:
    """Return the document, with the notes for the user added."""
    return encoded({**answer.document, "words": answer.words})
