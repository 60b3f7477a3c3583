"""Reports at the end of a program under `brickd run` that nothing was recorded, and the likely reason.

Owns: which process reports for a program, when it reports, the names of other libraries that run models. Must not know:
how a model is found. Invariants: the first Python process of a program reports for itself and its descendants, and
knows whether any of them opened a segment or printed a report (`writer/run_mark.c`). It reports only after all its
descendants have ended. A process that recorded anything prints nothing, unless it loaded another library, whose models
brickd does not see. A library counts only if the host itself imported it. An error has no effect.
"""

from __future__ import annotations

import os
import stat
import sys

from brick_agent._core import _mark_run, _recorded

# An environment variable that contains words, the newest word first. `brickd run` puts PID@STDERR in front: the pid of
# the process that it becomes, and the device and the inode of its stderr. The first Python of that program puts PID:FD
# in front of this word, where FD is its file for marks.
RUN = "_BRICKD_RUN"
_OTHERS = ("jax", "tensorflow", "onnxruntime", "mlx", "tensorrt", "openvino", "paddle", "ctranslate2", "llama_cpp")
_NEXT = 'to time other code, name its parts: with brick_agent.span("NAME"):'
_ONLY = "brickd run times only models of torch"
_NAME = "brickd-run"  # as in `writer/run_mark.c`
_HIGH = 256  # the lowest number for our descriptor, so that the host's own descriptors keep their usual numbers

# The pid of the first Python process of a program (0: there is no program), its file for marks, and the word of
# `brickd run`.
_pid, _mark, _run = 0, -1, ""


def begin() -> None:
    """Make this process report for its program, if it is the program's first Python."""
    global _pid, _mark, _run
    try:
        words = os.environ.get(RUN, "").split()
        if words and words[0].startswith(f"{os.getpid()}:"):  # this process has replaced itself by another Python
            del words[0]
        elif not words or ":" in words[0]:
            return
        _pid, _mark, _run = os.getpid(), _new_mark(), words[0] if words else ""
        os.environ[RUN] = " ".join((f"{_pid}:{_mark}", *words))
    except Exception:
        pass


def _new_mark() -> int:
    """Return a new file in memory, which no other program inherits."""
    import fcntl

    low = os.memfd_create(_NAME)
    try:
        high: int = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:  # the limit on descriptors is below _HIGH
        return low
    os.close(low)
    return high


def report() -> None:
    """Print at most one line on stderr."""
    try:
        if (text := _unseen()) is not None:
            sys.stderr.write(f"brickd run: {text}\n")
    except Exception:
        pass


def _unseen() -> str | None:
    """Return what was not recorded, and why; None if everything was recorded, or if this is not certain."""
    process = f"process {os.getpid()}"
    if others := ", ".join(name for name in _OTHERS if name in sys.modules):
        if _recorded():
            return f"{process} loaded {others}, whose models are not recorded: {_ONLY}; {_NEXT}"
        _mark_run()
        return f"nothing was recorded in {process}: it loaded {others}, but {_ONLY}; {_NEXT}"
    if _recorded() or _pid != os.getpid() or _is_marked() or _has_children():
        return None
    torch = "torch" in sys.modules
    if not _run.startswith(f"{_pid}@"):  # a script started this program
        if _is_read():
            return None
        process += f" ({os.path.basename(sys.argv[0]) or 'python'})"
    if _had_children():
        following = "call brick_agent.instrument(model)" if torch else f"{_ONLY}; {_NEXT}"
        every = f"{process} and the processes that it started"
        return f"nothing was recorded in {every}: none of them called a torch model; {following}"
    if torch:
        why = "it called no torch model that has parts and parameters; call brick_agent.instrument(model)"
        return f"nothing was recorded in {process}: {why}"
    return f"nothing was recorded in {process}: it did not import torch, but {_ONLY}; {_NEXT}"


def _is_marked() -> bool:
    """Whether a process below this one opened a segment or reported; true if the host has closed the file."""
    try:
        known = os.readlink(f"/proc/self/fd/{_mark}").startswith(f"/memfd:{_NAME}")
        return not known or os.fstat(_mark).st_size > 0
    except OSError:
        return True


def _is_read() -> bool:
    """Whether the script that started this program reads its stderr, as in `$(python -c ... 2>&1)`."""
    status = os.fstat(2)
    run, _, of_run = _run.partition("@")
    if not stat.S_ISFIFO(status.st_mode) or of_run == f"{status.st_dev}.{status.st_ino}":
        return False
    pid = os.getppid()
    while pid > 1 and not _reads(pid, status.st_ino):
        if str(pid) == run:
            return False
        with open(f"/proc/{pid}/stat", "rb") as file:
            pid = int(file.read().rpartition(b")")[2].split()[1])
    return pid > 1


def _reads(pid: int, pipe: int) -> bool:
    """Whether a process can read from this pipe, because it holds the end for reading."""
    folder = f"/proc/{pid}/fd"
    for number in os.listdir(folder):
        if os.readlink(f"{folder}/{number}") == f"pipe:[{pipe}]":
            with open(f"/proc/{pid}/fdinfo/{number}") as file:
                flags = next(line.split()[1] for line in file if line.startswith("flags:"))
            if int(flags, 8) & os.O_ACCMODE == os.O_RDONLY:
                return True
    return False


def _had_children() -> bool:
    """Whether this process has ever waited for a child."""
    import resource

    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0


def _has_children() -> bool:
    """Whether this process has children, not counting the one that cleans up after multiprocessing and ends later."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    helper = str(getattr(tracker, "_pid", None)).encode()
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/children", "rb") as file:
            if any(pid != helper for pid in file.read().split()):
                return True
    return False
