"""Shared fixtures: a prefix of segments per test, worker processes, the compiled writer.

A worker is a Python program in its own process. A worker takes turns with its test over pipes. The program sends JSON
with `report(value)` and waits in `pause()`. The test reads a report with `next_report()` and resumes the program with
`go()`.
"""

from __future__ import annotations

import fcntl
import functools
import gc
import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sandbox
from forked_processes import Process, forking_parent
from forked_tests import ForkedTests
from forking_server import keep_build
from hypothesis import HealthCheck, Phase, settings
from sandbox import apart, started_in
from untouched import Untouched, users_places

from brickd.base.paths import runtime
from brickd.shm.segment import open_segment
from brickd.shm.segment_copy import Reading
from brickd.shm.segment_files import find

if TYPE_CHECKING:
    from serving import Daemon

# By default, each run tries the same few examples. The run before a change lands tries more examples. A nightly run
# tries many examples, and --hypothesis-seed selects which. How long an example takes depends on the machine, so no test
# is refused because of it.
EVERY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", EVERY, derandomize=True, max_examples=5)
settings.register_profile("landing", EVERY, derandomize=True, max_examples=25)
# The phase `explain` is left out, because it can take longer than all examples.
SHRUNK = [phase for phase in Phase if phase != Phase.explain]
settings.register_profile("nightly", EVERY, derandomize=False, max_examples=250, phases=SHRUNK, print_blob=True)
settings.load_profile(os.environ.get("TESTS_PROFILE", "quick"))

# Background jobs of a shell, and programs under nohup, ignore these signals, and all child processes inherit this. So
# restore the default.
for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.default_int_handler if ignored == signal.SIGINT else signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--processes`."""
    parser.addoption(
        "--processes", type=int, default=0, metavar="N", help="run the tests in N processes; 0: in this one"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Session fixtures, and code that runs between tests, also need directories and a prefix. Give them their own."""
    config.pluginmanager.register(Untouched(users_places()))
    base = ExitStack()
    base.enter_context(own_places())
    config.add_cleanup(base.close)
    if config.option.processes > 1 and not config.option.usepdb:
        config.pluginmanager.register(ForkedTests(config.option.processes, own_places))


@contextmanager
def own_places() -> Iterator[None]:
    """Give each process that runs tests its own directories and prefix. The code that runs between tests uses them."""
    sandbox.forget_unused()
    try:
        with apart():
            yield
    finally:
        sandbox.remove_unused()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the tests that pytest has found from garbage collection, because they live until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(50_000, *gc.get_threshold()[1:])  # more frequent collection takes 5 % of the tests' time


def pytest_collection_finish(session: pytest.Session) -> None:
    """Do once what all processes of the tests share: look up the build, and start the parents from which verbs and
    workers are forked.
    """
    if session.config.option.processes > 1 and len(session.items) > _SHARED_FROM:
        keep_build()
        for what in ("brickd", "worker", "worker with profiler", "worker with numpy"):
            forking_parent(what)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests a longer timeout, unless they have their own."""
    for item in items:
        is_slow = item.get_closest_marker("slow") is not None or item.get_closest_marker("nightly") is not None
        if is_slow and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SLOW_SECONDS))


_SLOW_SECONDS = 600
_SHARED_FROM = 200  # the number of tests from which the parents are shared; a short run needs only a few of them
_FAILED = pytest.StashKey[bool]()

ROOT = Path(__file__).parent.parent
SHM = sandbox.SHM

_PROGRAM = """\
import os, sys
def report(value=None):
    import _json  # all that json would load takes longer than most programs
    made = _json.make_encoder(None, None, _json.encode_basestring_ascii, None, ": ", ", ", False, False, True)
    os.write(1, "".join(made(value, 0)).encode() + b"\\n")
def pause():
    os.write(1, b'"paused"\\n')
    if not os.read(0, 1):
        os._exit(3)
import brick_agent as brick
from brick_agent import _core
"""


class Worker:
    """A worker process that takes turns with a test."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.stderr = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    def next_report(self) -> Any:
        """The next report of the program."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the worker ended with {self.end()} before it reported: {self.stderr}"
        return json.loads(line)

    def paused(self) -> None:
        """Wait until the program pauses."""
        assert self.next_report() == "paused"

    def go(self) -> None:
        """Let the process continue."""
        assert self.process.stdin is not None
        self.process.stdin.write(b".")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Send SIGKILL, and wait until the kernel has released the program's locks."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Wait until the process ends; return its exit status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdin.close()
        self.process.stdout.read()
        self.stderr = self.process.stderr.read().decode()
        return self.process.wait()


# Modules that are slow to load. If a program contains the text next to a module, it needs this module.
_LOADED = {
    "torch": "import torch",
    "numpy": "import numpy",
    "profiler": r"\b(BrickProfiler|KernelTrace|TraceRun)\b",
    "asyncio": "import asyncio",
}


def _loads(program: str) -> str:
    """Return which kind of parent process forks a worker with this program."""
    found = [f"worker with {what}" for what, pattern in _LOADED.items() if re.search(pattern, program)]
    return found[0] if found else "worker"


@contextmanager
def workers(forked: bool = True) -> Iterator[Callable[..., Worker]]:
    """Starts workers: `start(program, **environment)`; kills the workers that still run at the end.

    `before` is the beginning of the command, and `python` the options of its interpreter. A worker is usually forked.
    It is started as a command if `before` or `python` is given, if its environment changes the loader or the
    interpreter, or if `forked` is false.
    """
    started: list[Worker] = []

    def start(
        program: str, *, before: tuple[str, ...] = (), python: tuple[str, ...] = (), **environment: str
    ) -> Worker:
        text = _PROGRAM + textwrap.dedent(program)
        process: Process
        if forked and not before and not python and all(name.startswith("BRICKD") for name in environment):
            process = forking_parent(_loads(text)).start((text,), os.environ | environment)
        else:
            process = subprocess.Popen(
                [*before, sys.executable, *python, "-c", text],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=os.environ | environment,
            )
        started.append(Worker(process))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            with each.process:
                if each.process.poll() is None:
                    each.kill()


@pytest.fixture(autouse=True)
def isolated(request: pytest.FixtureRequest) -> Iterator[str]:
    """Give each test its own directories and prefix. A module whose tests share processes overrides the scope of this
    fixture.
    """
    with apart() as name:
        yield name
        if request.node.stash.get(_FAILED, False):  # only a failed test may have left processes
            for pid in started_in(name):
                with suppress(ProcessLookupError):
                    process = os.pidfd_open(pid)
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    select.select([process], [], [])  # wait until the process has ended
                    os.close(process)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Store the result of a test, so that its fixtures can read it."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture
def prefix(isolated: str) -> str:
    """The prefix of this test."""
    return isolated


@pytest.fixture
def worker(prefix: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., Worker]]:
    """Starts a worker: `worker(program, **environment)`."""
    with workers(forked=request.node.get_closest_marker("interpreter") is None) as start:
        yield start


@pytest.fixture
def daemon(prefix: str) -> Iterator[Daemon]:
    """A daemon that uses the socket and the prefix of the test's environment."""
    # Imported late, because most tests need no server.
    from serving import serving

    with serving(runtime().socket) as serves:
        yield serves


# Another user cannot run an interpreter that is below a closed home directory. So the command gets a mount namespace in
# which this directory contains only the interpreter.
_HOME = """
mount --bind "$1" /mnt && mount -t tmpfs -o mode=755 home "$2" && mkdir -p "$1" && mount --move /mnt "$1" && shift 2
exec "$@"
"""


def another_user(uid: int, *groups: int) -> list[str]:
    """The first words of a command that runs as another user, who is a member of only these groups."""
    member = f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"
    command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", member]
    if os.geteuid() != 0 or shutil.which(command[0]) is None:
        pytest.skip("needs root and setpriv, to be another user")
    base = Path(sys.base_prefix)
    closed = [folder for folder in base.parents if not folder.stat().st_mode & 0o001]
    if closed:
        command = ["unshare", "-m", "sh", "-c", _HOME, "sh", os.fspath(base), os.fspath(closed[-1]), *command]
    if not _runs_brickd(*command):
        pytest.skip(f"user {uid} may not read this installation")
    return command


@functools.cache
def _runs_brickd(*command: str) -> bool:
    return subprocess.run([*command, sys.executable, "-P", "-c", "import brickd.cli"], check=False).returncode == 0


@pytest.fixture
def nobody() -> list[str]:
    """The first words of a command that runs as a user other than the user of the tests."""
    return another_user(65534)


def readings(prefix: str) -> list[Reading]:
    """One reading of each segment of a test, the oldest segment first."""
    result = []
    for file in find(prefix):
        with open_segment(file) as segment:
            result.append(segment.read())
    return sorted(result, key=lambda reading: (reading.header["started_ns"], reading.file))


def reading(prefix: str) -> Reading:
    """The reading of a test's only segment."""
    (only,) = readings(prefix)
    return only


WRITER = tuple(
    sorted(path for part in ("writer", "fingerprint") for path in (ROOT / "agent" / "src" / part).glob("*.c"))
)
INCLUDES = ("-I", str(ROOT / "agent" / "include"), "-I", str(ROOT / "agent" / "src"))


# Compiled files are kept next to the installed packages, because compiling is slow and they seldom change.
KEPT = ROOT / ".venv" / "kept"
_KEPT_SECONDS = 7 * 86_400


def kept(name: str, of: Iterable[bytes], make: Callable[[Path], object]) -> Path:
    """Return the file made earlier from the same contents, or make it with `make(path)`."""
    made_of = hashlib.sha256(b"".join(hashlib.sha256(each).digest() for each in of)).hexdigest()
    target = KEPT / f"{made_of[:16]}-{name}"
    KEPT.mkdir(exist_ok=True)
    with (KEPT / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            draft = target.with_suffix(".draft")
            shutil.rmtree(draft, ignore_errors=True)
            make(draft)
            draft.rename(target)
        os.utime(target)
    return target


@contextmanager
def untimed() -> Iterator[None]:
    """Stop the clock of the test's timeout. After a clean checkout, the first test that needs a program compiles it,
    which takes minutes on a busy machine. A compiler needs no timeout.
    """
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)


def _forget_old() -> None:
    for old in KEPT.glob("*"):
        with suppress(FileNotFoundError):
            if time.time() - old.stat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(old) if old.is_dir() else old.unlink()


def contents(files: Iterable[Path]) -> Iterator[bytes]:
    """Return the names of files and their contents."""
    return (content for file in files for content in (file.name.encode(), file.read_bytes()))


@functools.cache
def version(tool: str) -> bytes:
    """The output of a tool's `--version`."""
    return subprocess.run([tool, "--version"], stdout=subprocess.PIPE, check=True).stdout


@pytest.fixture(scope="session")
def compiled() -> Callable[..., Path]:
    """Compiles C: `compiled(name, sources, *flags)`. Compiles each source only once, even in several runs."""
    assert shutil.which("gcc") is not None, "the tests need gcc, as the installation of brickd does"
    _forget_old()
    # All objects are compiled with -fPIC, so that programs and libraries can share them. Both programs and libraries
    # consist mostly of the writer.
    warnings = ("-Wall", "-Wextra", "-Werror")
    common: tuple[str | Path, ...] = (
        "gcc",
        "-std=c11",
        "-D_GNU_SOURCE",
        "-g",
        *warnings,
        "-pthread",
        "-fPIC",
        *INCLUDES,
    )
    agents = sorted(path for folder in ("include", "src") for path in (ROOT / "agent" / folder).rglob("*.h"))

    def preprocessed(source: Path, flags: tuple[str, ...]) -> bytes | None:
        """Return the preprocessed source, or None if a pragma in the source changes definitions.

        Such a source cannot be preprocessed.
        """
        done = subprocess.run([*common, *flags, "-E", source], capture_output=True, check=False)
        return done.stdout if done.returncode == 0 else None

    @functools.cache  # cached, because reading all sources takes longer than most programs run
    def compiled_alone(source: Path, flags: tuple[str, ...]) -> Path:
        made_of = tuple(contents(dict.fromkeys((*agents, *sorted(source.parent.glob("*.h")), source))))
        others = tuple(flag for flag in flags if not flag.startswith("-D"))

        def make(target: Path) -> None:
            # For most sources, the preprocessed text does not depend on the definitions. So equal preprocessed texts
            # share one object.
            text = preprocessed(source, flags)
            what = (others, text) if text is not None else (flags, b"".join(made_of))
            by = (version("gcc"), repr((common, what[0])).encode(), what[1])
            command = (*common, *flags, "-c", source, "-o")
            same = kept(f"{source.stem}.same.o", by, lambda draft: subprocess.run([*command, draft], check=True))
            os.link(same, target)

        return kept(f"{source.stem}.o", (version("gcc"), repr((common, flags)).encode(), *made_of), make)

    @functools.cache
    @untimed()
    def build(name: str, sources: tuple[Path, ...], *flags: str) -> Path:
        alone = tuple(flag for flag in flags if flag not in ("-shared", "-fPIC"))
        objects = tuple(compiled_alone(each, alone) if each.suffix == ".c" else each for each in sources)
        command = (*common, *flags, *objects, "-lm", "-o")
        return kept(
            name,
            (version("gcc"), repr((common, flags)).encode(), *(each.name.encode() for each in objects)),
            lambda target: subprocess.run([*command, target], check=True),
        )

    return build
