"""The process that forks verbs and workers; `forked_processes.py` starts it and sends its requests.

Invariant: the process loads little more than its children need, because the cost of a fork grows with what is loaded.
"""

from __future__ import annotations

import _socket
import gc
import marshal
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGE_BYTES = 1 << 20
_FILES, _FILE = 4, 4  # the number of descriptors in a message, and the bytes of each


def _serve(number: int) -> None:
    """Fork for each request, and report each exit; return only in a child, which runs the request."""
    living: dict[int, tuple[int, _socket.socket]] = {}
    poll = select.poll()
    poll.register(number, select.POLLIN)
    asked = _socket.socket(fileno=number)
    while True:
        for fd, _ in poll.poll():
            if fd != number:
                pid, answer = living.pop(fd)
                answer.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
                answer.close()
                poll.unregister(fd)
                os.close(fd)
                continue
            message, files = _received(asked)
            if not message:
                os._exit(0)
            answer = _socket.socket(fileno=files.pop(0))
            pid = os.fork()
            if pid == 0:
                answer.close()
                asked.close()
                for other, (_, its) in living.items():
                    os.close(other)
                    its.close()
                return _become(message, files)
            for file in files:
                os.close(file)
            pidfd = os.pidfd_open(pid)
            there = pidfd.to_bytes(_FILE, sys.byteorder)
            answer.sendmsg([str(pid).encode()], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, there)])
            living[pidfd] = pid, answer
            poll.register(pidfd, select.POLLIN)


def _received(asked: _socket.socket) -> tuple[bytes, list[int]]:
    """Receive a request and the descriptors that come with it."""
    message, ancillary, _, _ = asked.recvmsg(MESSAGE_BYTES, _socket.CMSG_LEN(_FILES * _FILE))
    files = b"".join(data for _, _, data in ancillary)
    return message, [int.from_bytes(files[at : at + _FILE], sys.byteorder) for at in range(0, len(files), _FILE)]


def _become(message: bytes, files: list[int]) -> None:
    arguments, removed, changed, directory = marshal.loads(message)
    for standard, file in enumerate(files):
        os.dup2(file, standard)
        os.close(file)
    for name in removed:
        del os.environ[name]
    os.environ.update(changed)
    os.chdir(directory)
    sys.argv[1:] = arguments


def _verb() -> Callable[[], None]:
    """Load everything that verbs load, and return a function that runs a verb."""
    import importlib
    import pkgutil
    from contextlib import redirect_stdout

    import click

    from brickd import datasources, views
    from brickd.__main__ import main
    from brickd.cli import brickd
    from brickd.query.verbs import VERBS

    for verb in VERBS:
        brickd.get_command(click.Context(brickd), verb)
    # Also load what verbs need if no daemon answers, and what a daemon needs.
    late = ["brickd.cli.inprocess_daemon", "brickd.api.server", "brickd.daemon.sd_notify", "brickd.doctor.run_checks"]
    late += ["brickd.cli.dot", "click._textwrap", "csv", "difflib", "hashlib", "importlib.metadata", "tempfile"]
    late += ["uvicorn.lifespan.off"]
    for room in (views, datasources):
        late += [each.name for each in pkgutil.iter_modules(room.__path__, f"{room.__name__}.")]
    for module in late:
        importlib.import_module(module)
    keep_build()
    # What click does only the first time takes 2 ms. The texts of `help` depend on no variable and no file.
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing):
        brickd.main(["help"], standalone_mode=False)

    def run() -> None:
        sys.argv[0] = "brickd"
        code = main()
        sys.stdout.flush()
        os._exit(code)

    return run


def _open_streams() -> None:
    """Make the stream objects of the children here, because making them takes a tenth of the time of a worker.

    They are made for pipes, as the streams of most children are; those of this process may be files.
    """
    for number, (name, mode, buffering) in enumerate((("stdin", "r", -1), ("stdout", "w", -1), ("stderr", "w", 1))):
        own, (into_child, out_of_child) = os.dup(number), os.pipe()
        os.dup2(out_of_child if number else into_child, number)
        standard = getattr(sys, name)
        setattr(sys, name, os.fdopen(number, mode, buffering, standard.encoding, standard.errors))
        os.dup2(own, number)
        for file in (own, into_child, out_of_child):
            os.close(file)


def keep_build() -> None:
    """Look up the build of brickd only once: this reads all its files, and they do not change during the tests."""
    import functools

    from brickd.client import other_version

    looked_up = (other_version.installed, other_version._digest)
    vars(other_version).update({each.__name__: functools.cache(each) for each in looked_up})
    other_version.ours()


def _worker() -> Callable[[], None]:
    """Return a function that runs the program of a worker, like `python -c`."""
    import atexit
    import ctypes

    import brick_agent  # noqa: F401

    leave = ctypes.CDLL(None).exit

    def run() -> None:
        program = sys.argv.pop()
        sys.argv[0] = "-c"
        main = sys.modules["__main__"] = type(sys)("__main__")
        exec(compile(program, "<string>", "exec"), main.__dict__)
        # End like the interpreter, but do not free what is loaded, which would be half of the cost of a worker.
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        leave(0)

    return run


def _worker_with_numpy() -> Callable[[], None]:
    """Load numpy, then do the same as `_worker`. The import takes ten times as long as the rest of a worker."""
    # numpy must start no threads, because a process with threads cannot fork safely
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import numpy  # noqa: F401

    return _worker()


def _worker_with_torch() -> Callable[[], None]:
    """Load torch, then do the same as `_worker`. The import takes two seconds."""
    import torch  # noqa: F401

    return _worker_with_numpy()


def _worker_with_asyncio() -> Callable[[], None]:
    """Load asyncio, then do the same as `_worker`. The import takes eight times as long as the rest of a worker."""
    import asyncio  # noqa: F401

    return _worker()


def _worker_with_profiler() -> Callable[[], None]:
    """Load profilers and traces, then do the same as `_worker`. The import takes six times as long as the rest of a
    worker.
    """
    import json  # noqa: F401

    from brick_agent import BrickProfiler, TraceReport  # noqa: F401

    return _worker_with_asyncio()


if __name__ == "__main__":
    what, number = sys.argv[1:]
    becomes = {
        "brickd": _verb,
        "worker": _worker,
        "worker with asyncio": _worker_with_asyncio,
        "worker with numpy": _worker_with_numpy,
        "worker with profiler": _worker_with_profiler,
        "worker with torch": _worker_with_torch,
    }[what]()
    compile("", "<string>", "exec")  # the first call makes types, which takes a fifth of the time of a worker
    _open_streams()
    gc.freeze()  # otherwise, garbage collection in a child would touch, and so copy, everything that was loaded
    _serve(int(number))
    becomes()
