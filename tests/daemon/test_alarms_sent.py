"""The targets of alarms: real commands, and real servers on loopback. Some work, and some fail."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from faults import Start
from running import UP, running, until
from verbs import brickd, document, started

from brickd.analysis.problem import Problem
from brickd.analysis.problem_book import Book
from brickd.base.secret_file import secret_of
from brickd.daemon.notify import Channel, Notifier, TargetFailed, _Item
from brickd.daemon.notify_targets import CommandTarget, UrlTarget, targets
from brickd.errors import BrickdError, WrongQuestion
from brickd.model.event_log import Log

# a certificate for 127.0.0.1, valid until 2120, from an authority that no machine trusts
TLS = ROOT / "tests" / "support" / "tls"
OFF = Problem("off", "api", ("api/0",), "recording is off", "brickd set --recording on api")


class Server(ThreadingHTTPServer):
    """A server that stores each request, and answers it with the next status in `statuses`.

    For the status 0, it waits until the server ends, and sends no answer.
    """

    daemon_threads = True

    def __init__(self, statuses: list[int], tls: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.scheme = "https" if tls else "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "server.pem")
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.statuses, self.got, self.ending = statuses, list[tuple[str, Any, bytes]](), threading.Event()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}/hook/secret?x=1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that does not trust the certificate


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((self.path, self.headers, body))
        status = self.server.statuses.pop(0) if len(self.server.statuses) > 1 else self.server.statuses[0]
        if not status:
            self.server.ending.wait()
            return
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("location", "/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def server(*statuses: int, tls: bool = False) -> Iterator[Server]:
    with Server(list(statuses), tls) as one:
        thread = threading.Thread(target=one.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield one
        finally:
            one.ending.set()
            one.shutdown()
            thread.join()


def failure(send: Callable[[], object]) -> tuple[str, bool]:
    with pytest.raises(TargetFailed) as failed:
        send()
    return str(failed.value), failed.value.again


def script(folder: Path, text: str) -> str:
    path = folder / "hook.py"
    path.write_text(text)
    return f"{sys.executable} -S {path}"


# ---- targets that are URLs


def test_a_document_is_posted_and_signed_with_the_secret() -> None:
    with server(204) as one:
        target = UrlTarget(one.url, b"s3cret")
        assert target.send(b'{"a":1}') == "answered 204"
        ((path, headers, body),) = one.got
    assert (path, body, headers["content-type"]) == ("/hook/secret?x=1", b'{"a":1}', "application/json")
    assert headers["brickd-signature"] == "sha256=" + hmac.new(b"s3cret", b'{"a":1}', hashlib.sha256).hexdigest()
    assert target.name == f"http://127.0.0.1:{one.server_port}", "the name omits the path, which may be a secret"


@pytest.mark.parametrize(
    ("status", "message", "again"),
    [
        (300, "answered 300, and redirects are not followed", False),
        (399, "answered 399, and redirects are not followed", False),
        (400, "answered 400", False),
        (307, "answered 307, and redirects are not followed", False),
        (404, "answered 404", False),
        (429, "answered 429", True),
        (500, "answered 500", True),
    ],
)
def test_redirects_and_other_unsuccessful_responses_are_failures(status: int, message: str, again: bool) -> None:
    with server(status) as one:
        assert failure(lambda: UrlTarget(one.url).send(b"{}")) == (message, again)
        assert len(one.got) == 1
        assert "brickd-signature" not in one.got[0][1]


def test_a_delivery_to_a_hanging_server_stops_at_the_time_limit() -> None:
    with server(0) as one:
        began = time.monotonic()
        assert failure(lambda: UrlTarget(one.url, None, 0.05).send(b"{}")) == ("no answer within 0.05 s", True)
        assert time.monotonic() - began < 5


def test_a_delivery_to_a_slow_dripping_server_stops_at_the_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ended = threading.Event()

        def drip() -> None:
            client, _ = listening.accept()
            with client:
                while not ended.wait(0.01):
                    try:
                        client.send(b"H")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        target = UrlTarget(f"http://127.0.0.1:{listening.getsockname()[1]}/", None, 0.1)
        assert failure(lambda: target.send(b"{}")) == ("no answer within 0.1 s", True)
        ended.set()
        thread.join()


class Resolver:
    """Answers each look-up of a host with these addresses, but only after the test has released the answer."""

    def __init__(self, *places: tuple[str, int]) -> None:
        self.places, self.asked, self.go = places, list[tuple[str, int]](), threading.Semaphore(0)

    def __call__(self, host: str, port: int, type: int) -> list[tuple[Any, ...]]:
        self.asked.append((host, port))
        self.go.acquire()
        return [(socket.AF_INET, type, 0, "", place) for place in self.places]


def test_a_hanging_resolver_times_out_and_is_not_called_again_until_it_answers() -> None:
    with server(200) as one:
        resolver = Resolver(("127.0.0.1", one.server_port))
        target = UrlTarget("http://hook.test:81/", None, 0.02, resolver)
        for _ in range(3):
            assert failure(lambda: target.send(b"{}")) == ("its name was not resolved within 0.02 s", True)
        assert resolver.asked == [("hook.test", 81)]
        patient = UrlTarget("http://hook.test:81/", None, 60, resolver)
        resolver.go.release(2)
        assert patient.send(b"{}") == "answered 200"
        resolver.go.release(1)
        assert patient.send(b"{}") == "answered 200"
        assert len(resolver.asked) == 3, "each attempt looks up the address, because the address may change"


def test_a_timeout_of_the_resolver_is_reported_as_no_answer() -> None:
    def gives_up(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        raise TimeoutError

    message, again = failure(lambda: UrlTarget("http://hook.test/", None, 60, gives_up).send(b"{}"))
    assert (message.startswith("no answer"), again) == (True, True)


def test_a_delivery_leaves_no_timer_and_no_socket_behind() -> None:
    with server(200) as one:
        target = UrlTarget(one.url, None, 1_000)
        assert target.send(b"{}") == "answered 200"
        until(lambda: not any(isinstance(thread, threading.Timer) for thread in threading.enumerate()))
        assert target._socket is None


def test_closing_a_channel_ends_its_delivery_although_the_resolver_hangs() -> None:
    resolver, log = Resolver(), Log()
    one = Channel(UrlTarget("http://hook.test/", None, 60, resolver), log.add)
    one.start()
    one.give(_Item(b"{}"))
    until(lambda: resolver.asked)
    one.end()
    assert not one._thread.is_alive()
    resolver.go.release()


def test_a_delivery_tries_every_address_and_fails_for_a_host_without_addresses() -> None:
    with server(200) as closed:
        gone = ("127.0.0.1", closed.server_port)
    with server(200) as one:
        resolver = Resolver(gone, ("127.0.0.1", one.server_port))
        resolver.go.release()
        assert UrlTarget("http://hook.test/", None, 60, resolver).send(b"{}") == "answered 200"
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_connection(full.getsockname()):
        # the queue of the listening socket is full, so the kernel accepts no further connection
        resolver = Resolver(full.getsockname(), gone)
        resolver.go.release()
        message = failure(lambda: UrlTarget("http://hook.test/", None, 1, resolver).send(b"{}"))
        assert message == ("no answer: Connection refused", True), (
            "the first address may not use up the time for the second"
        )
        resolver, began = Resolver(gone, full.getsockname()), time.monotonic()
        resolver.go.release()
        message = failure(lambda: UrlTarget("http://hook.test/", None, 0.2, resolver).send(b"{}"))
        assert message == ("no answer within 0.2 s", True)
        assert time.monotonic() - began > 0.15, "the last address may use all of the remaining time"
    with server(0) as one:
        resolver, began = Resolver(*[("127.0.0.1", one.server_port)] * 100), time.monotonic()
        resolver.go.release()
        message = failure(lambda: UrlTarget("http://hook.test/", None, 0.2, resolver).send(b"{}"))
        assert message == ("no answer within 0.2 s", True)
        assert time.monotonic() - began > 0.15, "waiting for the answer may also take all of the remaining time"
    none = Resolver()
    none.go.release()
    message = failure(lambda: UrlTarget("http://hook.test/", None, 9, none).send(b"{}"))
    assert message == ("no answer: its name has no address", True)


@pytest.mark.ci
def test_https_needs_a_trusted_certificate_for_the_right_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with server(204, tls=True) as one:
        untrusted = "its certificate is not trusted: unable to get local issuer certificate"
        assert failure(lambda: UrlTarget(one.url, b"s3cret").send(b"{}")) == (untrusted, False)
        assert one.got == []
        monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "authority.pem"))
        assert UrlTarget(one.url, b"s3cret").send(b"{}") == "answered 204"
        ((path, headers, body),) = one.got
        assert (path, headers["host"], body) == ("/hook/secret?x=1", f"127.0.0.1:{one.server_port}", b"{}")
        message, again = failure(lambda: UrlTarget(one.url.replace("127.0.0.1", "localhost")).send(b"{}"))
        assert (message.startswith("its certificate is not trusted: Hostname mismatch"), again) == (True, False)
        assert len(one.got) == 1


@pytest.mark.ci
def test_a_stalled_tls_handshake_ends_at_the_time_limit_or_when_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        assert failure(lambda: UrlTarget(url, None, 0.05).send(b"{}")) == ("no answer within 0.05 s", True)
        silent.accept()[0].close()
        one = Channel(UrlTarget(url, None, 60), Log().add)
        one.start()
        one.give(_Item(b"{}"))
        with silent.accept()[0] as client:
            assert client.recv(1) == b"\x16", "the server has received the beginning of the TLS handshake"
            one.end()
            assert not one._thread.is_alive()


def test_an_unreachable_server_is_a_failure_with_its_reason() -> None:
    with server(200) as one:
        url = one.url
    message, again = failure(lambda: UrlTarget(url).send(b"{}"))
    assert (message, again) == ("no answer: Connection refused", True)
    # the host name in this URL is invalid
    assert "label empty or too long" in failure(lambda: UrlTarget("http://a..b/").send(b"{}"))[0]


def test_a_url_without_a_port_uses_the_default_port_of_its_scheme() -> None:
    assert UrlTarget("https://a.test/x").name == "https://a.test:443"
    assert UrlTarget("http://a.test").name == "http://a.test:80"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://a/b",
        "http://",
        "https://u:p@a/",
        "http://u@a/",
        "http://a:99999/",
        "http://a/\n",
        "/path",
        "http://ä/",
    ],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(WrongQuestion, match="expected http://HOST"):
        UrlTarget(url)


def test_a_secret_file_must_be_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"s3cret\n")
    path.chmod(0o600)
    assert secret_of(path, "--notify-secret-file") == b"s3cret"
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(WrongQuestion, match=f"and mode 0{mode:o}, expected owner {os.geteuid()} and mode 0600"):
            secret_of(path, "--notify-secret-file")
    path.chmod(0o600)
    for content, seen in ((b"", "0"), (b"\n", "0"), (b"x" * 4097, "more than 4,096")):
        path.write_bytes(content)
        with pytest.raises(WrongQuestion, match=f"has {seen} bytes, expected 1 to 4,096 bytes"):
            secret_of(path, "--notify-secret-file")
    for secret in (b"x", b"x" * 4096):
        path.write_bytes(secret + b"\n")
        assert secret_of(path, "--notify-secret-file") == secret, "the newline does not count as a part of the secret"
    os.mkfifo(tmp_path / "pipe")
    for other, kind in ((tmp_path, "d"), (tmp_path / "pipe", "p")):  # opening a pipe without a writer would block
        with pytest.raises(WrongQuestion, match=rf"has mode {kind}\S+, expected a regular file"):
            secret_of(other, "--notify-secret-file")
    with pytest.raises(WrongQuestion, match="No such file"):
        secret_of(tmp_path / "none", "--notify-secret-file")
    with pytest.raises(WrongQuestion, match="needs --notify-url"):
        targets("true", None, path)


# ---- targets that are commands


def test_a_command_gets_the_document_on_its_standard_input(tmp_path: Path) -> None:
    target = CommandTarget(f"tee {tmp_path}/got")
    assert (target.send(b'{"a":1}\n'), (tmp_path / "got").read_bytes()) == ("exit status 0", b'{"a":1}\n')
    assert target.name == "command tee"


def test_a_command_with_a_relative_path_is_found_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page").write_text("#!/bin/sh\n")
    (tmp_path / "page").chmod(0o700)
    monkeypatch.chdir(tmp_path)
    target = CommandTarget("./page")
    monkeypatch.chdir("/")
    assert target.send(b"{}") == "exit status 0"


def test_a_second_test_message_is_refused_while_one_waits() -> None:
    target = Scripted()
    notifier = Notifier([target], "test-", Log().add)
    notifier.start()
    first = threading.Thread(target=notifier.test)
    first.start()
    try:
        until(notifier._testing.locked)
        with pytest.raises(BrickdError, match="another test is still running"):
            notifier.test()
    finally:
        target.go.release(9)
        first.join()
        notifier.end()


def test_a_command_fails_by_exit_status_or_signal_but_may_ignore_its_input() -> None:
    assert failure(lambda: CommandTarget("false").send(b"{}")) == ("exit status 1", False)
    assert failure(lambda: CommandTarget("sh -c 'kill -9 $$'").send(b"{}")) == ("ended by signal 9", False)
    message, again = failure(lambda: CommandTarget("/no/such/command").send(b"{}"))
    assert (message, again) == ("cannot be started: No such file or directory", False)
    message, again = failure(lambda: CommandTarget("tr\0ue").send(b"{}"))
    assert (message, again) == ("cannot be started: embedded null byte", False)
    assert CommandTarget("true").send(b"x" * 1_000_000) == "exit status 0"


def test_a_command_that_never_ends_is_killed_with_its_children(tmp_path: Path) -> None:
    target = CommandTarget(f"sh -c 'sleep 1000 & echo $! >{tmp_path}/pid; wait'", 0.2)
    assert failure(lambda: target.send(b"{}")) == ("did not end within 0.2 s and was killed", False)
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])


@pytest.mark.parametrize("command", ["", "  ", "echo 'open"])
def test_an_invalid_command_line_is_refused(command: str) -> None:
    with pytest.raises(WrongQuestion, match="expected a command line"):
        CommandTarget(command)


# ---- queues, tries and counts


class Scripted:
    """A target with given answers that waits for `go` before each answer."""

    name = "scripted"

    def __init__(self, *answers: Exception | None) -> None:
        self.answers, self.got, self.go = list(answers), list[bytes](), threading.Semaphore(0)
        self.asked = threading.Semaphore(0)

    def send(self, body: bytes) -> str:
        self.asked.release()
        self.go.acquire()
        self.got.append(body)
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        return "fine"

    def cancel(self) -> None:
        self.go.release()


@contextmanager
def channel(target: Scripted, log: Log, **how: Any) -> Iterator[Channel]:
    one = Channel(target, log.add, **how)
    one.start()
    try:
        yield one
    finally:
        one.end()


def kinds(log: Log) -> list[str]:
    return [each.kind for each in log.since(0).events]


def test_a_target_that_raises_an_exception_still_gets_the_next_document() -> None:
    target, log = Scripted(ValueError("odd"), None), Log()
    with channel(target, log) as one:
        target.go.release(9)
        one.give(_Item(b"a"))
        one.give(_Item(b"b"))
        until(lambda: one.document()["sent"] == 1)
        assert (one.document()["failed"], target.got) == (1, [b"a", b"b"])
    assert log.since(0).events[0].text == "scripted: ValueError: odd"


def test_documents_dropped_from_a_full_queue_are_counted_and_logged_once() -> None:
    target, log = Scripted(), Log()
    with channel(target, log, most=2) as one:
        assert one.give(_Item(b"0"))
        until(lambda: one.document()["waiting"] == 0)
        assert [one.give(_Item(b"%d" % n)) for n in range(1, 5)] == [True, True, False, False]
        assert (one.document()["dropped"], one.document()["waiting"], kinds(log)) == (2, 2, ["notify_dropped"])
        target.go.release(3)
        until(lambda: one.document()["sent"] == 3)
        assert target.got == [b"0", b"1", b"2"]


def test_only_temporary_failures_are_retried_once_per_configured_pause() -> None:
    target, log = Scripted(*[TargetFailed("busy", again=True)] * 2, None, TargetFailed("no")), Log()
    with channel(target, log, again_seconds=(0.001, 0.001)) as one:
        target.go.release(9)
        one.give(_Item(b"a"))
        one.give(_Item(b"b"))
        until(lambda: one.document()["failed"] == 1)
        assert target.got == [b"a", b"a", b"a", b"b"]
        assert one.document() == {
            "target": "scripted", "sent": 1, "failed": 1, "dropped": 0, "waiting": 0, "problem": "no",
        }  # fmt: skip
        target.answers += [TargetFailed("busy", again=True)] * 3
        one.give(_Item(b"c"))
        until(lambda: one.document()["failed"] == 2)
        assert target.got[4:] == [b"c"] * 3


def test_a_failing_target_is_logged_once_until_it_works_again() -> None:
    target, log = Scripted(*[TargetFailed("no")] * 3, None), Log()
    with channel(target, log) as one:
        target.go.release(9)
        for _ in range(4):
            one.give(_Item(b"a"))
        until(lambda: one.document()["sent"] == 1)
        until(lambda: len(kinds(log)) == 2)
    assert [(each.kind, each.text) for each in log.since(0).events] == [
        ("notify_failed", "scripted: no"), ("notify_works", "scripted accepts alarms again"),
    ]  # fmt: skip


def test_a_sent_problem_is_its_document_plus_state_and_cause() -> None:
    target, t = Scripted(), 1_700_000_000 * 10**9
    notifier = Notifier([target], "test-", Log().add)
    book, began = Book().updated([OFF], {"api/0"}, t, sends=True)
    _, ended = book.updated([], (), t + 10**9, sends=True)
    notifier.start()
    notifier.send([*began, *ended])
    target.go.release(2)
    until(lambda: len(target.got) == 2)
    notifier.end()
    first, last = map(json.loads, target.got)
    assert first | {"time": "", "host": ""} == {
        "schema_version": 1, "state": "active", "why": None, "time": "", "host": "", "prefix": "test-",
        "id": OFF.id, "kind": "off", "service": "api", "workers": ["api/0"], "text": "recording is off",
        "command": "brickd set --recording on api", "since": "2023-11-14T22:13:20.000Z",
        "seen": "2023-11-14T22:13:20.000Z", "silenced_until": None,
    }  # fmt: skip
    assert (last["state"], last["why"], last["id"]) == ("ended", "its workers ended", OFF.id)


def test_a_test_message_needs_a_target_and_waits_no_longer_than_its_limit() -> None:
    target = Scripted()
    notifier = Notifier([target], "test-", Log().add)
    notifier.start()
    assert [each["ok"] for each in notifier.test(0.01)] == [False]
    target.asked.acquire()  # it never answers the first message, so all others wait
    for waits in ("1 alarm waits", "2 alarms wait"):
        answer = f"has not answered after 0.01 s, {waits}"
        assert notifier.test(0.01) == [{"target": "scripted", "ok": False, "answer": answer}]
    notifier.end()
    with pytest.raises(BrickdError, match="the daemon has no target for alarms"):
        Notifier([], "test-", Log().add).test()


# ---- a daemon


@pytest.mark.ci
def test_a_daemon_sends_a_problem_once_and_survives_failing_targets(worker: Start, prefix: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("s3cret")
    hook = script(tmp_path, f"import sys; open({str(tmp_path / 'got')!r}, 'a').write(sys.stdin.read())")
    process = started(worker, "brick.init(names=64)\nfor n in range(99):\n    with brick.span(str(n)): pass\npause()")
    with server(200) as one:
        more = ("--notify-exec", hook, "--notify-url", one.url, "--notify-secret-file", str(secret))
        with running(command=(*UP, *more)) as daemon:
            until(lambda: len(one.got) >= 1)
            sent = json.loads(one.got[0][2])
            (problem,) = document("status")["problems"]
            assert (sent["state"], sent["id"], sent["kind"]) == ("active", problem["id"], "lost")
            assert one.got[0][1]["brickd-signature"].startswith("sha256=")
            until(lambda: (tmp_path / "got").exists() and (tmp_path / "got").read_text().count("\n") == 1)
            assert json.loads((tmp_path / "got").read_text())["id"] == problem["id"]
            tested = document("notify", "test")["targets"]
            assert [(each["ok"], each["answer"]) for each in tested] == [
                (True, "exit status 0"), (True, "answered 200"),
            ]  # fmt: skip
            assert [json.loads(body)["state"] for _, _, body in one.got] == ["active", "test"]
            one.statuses[:] = [500]
            assert brickd("notify", "test").returncode == 1
            assert "answered 500" in daemon.until("notify_failed")["text"]
            counts = document("status")["daemon"]["notify"]
            assert [(each["sent"], each["failed"], each["problem"]) for each in counts] == [
                (3, 0, None), (2, 1, "answered 500"),
            ]  # fmt: skip
            daemon.end()
    assert process.process.poll() is None


@pytest.mark.ci
def test_a_test_message_needs_a_target_and_wrong_options_prevent_the_start(prefix: str, tmp_path: Path) -> None:
    with running():
        ended = brickd("notify", "test")
        assert (ended.returncode, "the daemon has no target for alarms" in ended.stderr) == (2, True)
    assert brickd("notify", "test").returncode == 3
    for option in (("--notify-url", "ftp://x"), ("--notify-exec", ""), ("--notify-secret-file", str(tmp_path))):
        ended = brickd("up", *option)
        assert (ended.returncode, ended.stdout, option[0] in ended.stderr) == (2, "", True)
