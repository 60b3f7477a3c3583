"""If memory or space of any kind runs out, the host continues unharmed. The agent prints one line, and losses are
counted.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import SHM, Worker, reading, readings
from faults import PRIVATE, Start, counts, exact, needs_namespaces
from forge import BLOCK, PAGE, place

from brickd.shm.ledger import ledger_of
from brickd.shm.segment_copy import Reading

HOST = """
import threading
def work():
    for n in range(100):
        with brick.span("outer"), brick.span(f"inner {n}"): pass
work()
thread = threading.Thread(target=work); thread.start(); thread.join()
brick.shutdown()
sys.exit(5)
"""


def unharmed(process: Worker, complaint: str) -> None:
    """Assert that the host did its work and ended normally, and that the agent printed one line."""
    assert process.end() == 5
    (line,) = process.stderr.splitlines()
    assert line.startswith("brickd: this process is not recorded: ")
    assert complaint in line


# ---- limits that need no privilege -------------------------------------------------------------------------------


def test_a_file_size_limit_stops_the_recording_and_not_the_host(worker: Start, prefix: str) -> None:
    process = worker(
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n" + HOST
    )
    unharmed(process, "the limit of file sizes is 1048576 bytes, expected at least ")
    assert "ulimit -f" in process.stderr
    assert readings(prefix) == []


def test_too_many_lanes_are_refused_with_the_number_and_the_limit(worker: Start, prefix: str) -> None:
    process = worker(HOST, BRICKD_LANES="1025", BRICKD_PATHS="99999999")  # a size of a table is rounded, not refused
    unharmed(process, ": BRICKD_LANES is 1025, expected at most 1024")
    assert readings(prefix) == []


def test_a_file_size_limit_set_later_has_no_effect(worker: Start, prefix: str) -> None:
    process = worker(
        """
        import resource, signal, threading
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        brick.init()
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        def work():
            for n in range(100):
                with brick.span(f"inner {n}"): pass
        work()
        thread = threading.Thread(target=work); thread.start(); work(); thread.join()
        pause()
        """
    )
    process.paused()
    assert exact(reading(prefix)) == {"begun": 300, "summarized": 300}
    assert reading(prefix).process["blocks_refused"] == 0
    process.go()
    assert process.end() == 0


def test_an_address_space_limit_stops_the_recording_and_not_the_host(worker: Start, prefix: str) -> None:
    process = worker(
        "import resource\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (24 << 20),) * 2)\n" + HOST
    )
    unharmed(process, "cannot map the segment")
    assert list(SHM.glob(prefix + "*")) == []


@pytest.mark.parametrize("how", [0, 1, 3], ids=["unlocked", "locked now", "locked now and later"])
def test_a_host_that_locks_its_memory_takes_no_memory_for_unused_places(worker: Start, prefix: str, how: int) -> None:
    """MCL_CURRENT is 1, MCL_FUTURE is 2. MCL_FUTURE also locks memory that is allocated later."""
    process = worker(
        f"""
import ctypes
def locked():
    return next(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Locked:"))
report({how} and ctypes.CDLL(None).mlockall({how}))
brick.init()
before = locked()
with brick.span("one"): pass
for layer in range(200):
    with brick.layer(layer), brick.span("one"): pass
report(locked() - before)
pause()
"""
    )
    if process.next_report() != 0:
        pytest.skip("this user may not lock this much memory")
    locked_kib = process.next_report()
    process.paused()
    assert reading(prefix).memory_bytes < 1 << 20
    assert (locked_kib >= 3 * 64 * 1152 >> 10) == (how == 3)
    process.go()
    assert process.end() == 0, process.stderr


# Leaves enough memory for a segment of this size, but not for the tables of the process.
NARROW = """
import resource
def narrow(size):
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + size + (64 << 10),) * 2)
    brick.init()
"""


def test_an_address_space_for_only_the_segment_leaves_no_file(worker: Start, prefix: str) -> None:
    other = worker("brick.init(); report(os.fstat(_core._segment_fd()).st_size)")
    size = other.next_report()
    other.end()
    process = worker(
        NARROW
        + f"narrow({size})"
        + """
with brick.span("b"): pass
kept = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
kept += open("/proc/self/maps").readlines()
sys.exit(6 if any("/dev/shm/" in each for each in kept) else 5)
"""
    )
    unharmed(process, "no memory: ")
    assert list(SHM.glob(prefix + "*")) == []


def test_each_block_of_names_has_memory_before_its_first_write(worker: Start, prefix: str) -> None:
    """If a page has no memory yet and there is none left, writing a name to it would end the host."""
    block = 4_096  # the block that has the first name of the segment
    source = f"for n in range({block + 4}):\n    with brick.span(f'name {{n}}'): pass\npause()"
    process = worker(source, BRICKD_NAMES=str(2 * block))
    process.paused()
    (file,) = SHM.glob(prefix + "*")
    with file.open("rb") as segment:
        page = segment.read(PAGE)
        begin, end = place(page, "name", block), place(page, "name", block + BLOCK)
        assert os.lseek(segment.fileno(), begin, os.SEEK_DATA) == begin
        assert os.lseek(segment.fileno(), begin, os.SEEK_HOLE) >= end


def test_each_block_of_summaries_has_memory_before_its_first_write(worker: Start, prefix: str) -> None:
    """If /dev/shm is full, a write to a page that has no memory yet ends the host."""
    process = worker(f"for n in range({BLOCK + 4}):\n    with brick.span(f'path {{n}}'): pass\npause()")
    process.paused()
    (file,) = SHM.glob(prefix + "*")
    with file.open("rb") as segment:
        page = segment.read(PAGE)
        begin, end = place(page, "summary", BLOCK), place(page, "summary", 2 * BLOCK)
        assert os.lseek(segment.fileno(), begin, os.SEEK_DATA) == begin
        assert os.lseek(segment.fileno(), begin, os.SEEK_HOLE) >= end


def test_a_child_with_too_little_address_space_leaves_no_file(worker: Start, prefix: str) -> None:
    process = worker(
        NARROW
        + """
with brick.span("b"): pass
size = os.fstat(_core._segment_fd()).st_size
if (child := os.fork()) == 0:
    narrow(size)
    with brick.span("b"): pass
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
with brick.span("b"): pass
pause()
"""
    )
    process.paused()
    assert counts(reading(prefix)) == {"b": 2}
    process.go()
    assert process.end() == 0
    assert process.stderr.startswith("brickd: this process is not recorded: no memory: ")


def test_a_host_without_free_descriptors_is_unharmed(worker: Start, prefix: str) -> None:
    process = worker(
        "import resource, threading\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))\n"
        "held = []\n"
        "try:\n"
        "    while True: held.append(os.dup(0))\n"
        "except OSError: pass\n" + HOST
    )
    unharmed(process, "cannot create a file in /dev/shm")
    assert list(SHM.glob(prefix + "*")) == []


def test_children_of_a_host_that_could_not_record_print_nothing(worker: Start, prefix: str) -> None:
    process = worker(
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "brick.init()\n"
        "for _ in range(3):\n"
        "    if (child := os.fork()) == 0:\n"
        "        with brick.span('b'): pass\n"
        "        os._exit(7)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n" + HOST
    )
    unharmed(process, "ulimit -f")
    assert readings(prefix) == []


def test_a_host_without_standard_streams_does_not_print_into_its_segment(worker: Start, prefix: str) -> None:
    process = worker(
        """
        kept = [os.dup(stream) for stream in range(3)]
        for stream in range(3): os.close(stream)
        with brick.span("b"): pass
        try: os.write(2, b"a message of the host's that has nowhere to go")
        except OSError: pass
        segment = _core._segment_fd()
        for stream, copy in enumerate(kept): os.dup2(copy, stream)
        report(segment)
        pause()
        """
    )
    assert process.next_report() > 2
    process.paused()
    assert exact(reading(prefix)) == {"begun": 1, "summarized": 1}
    process.go()
    assert process.end() == 0


@pytest.mark.ci
@needs_namespaces
def test_without_proc_a_host_is_recorded_without_its_start_time(worker: Start, prefix: str) -> None:
    process = worker(PRIVATE + 'mount(b"tmpfs", b"/proc", b"tmpfs", 0, None)\nwith brick.span("b"): pass\npause()')
    process.paused()
    got = reading(prefix)
    assert (got.header["process_start"], bytes(got.header["boot_id"])) == (0, bytes(16))
    assert exact(got) == {"begun": 1, "summarized": 1}
    process.go()
    assert process.end() == 0


# ---- a worker with its own /dev/shm
# --------------------------------------------------------------------------------------------


def small(size: str) -> str:
    return PRIVATE + f'mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size={size}")\n'


def seen(process: Worker, prefix: str) -> Reading:
    """Return a copy of the segment of a worker with its own /dev/shm when the worker pauses; the copy has no lock."""
    process.paused()
    (file,) = Path(f"/proc/{process.pid}/root/dev/shm").glob(prefix + "*")
    shutil.copy(file, SHM)
    (SHM / file.name).chmod(0o600)
    return reading(prefix)


FILL = """
with open("/dev/shm/filler", "wb", buffering=0) as filler:
    try:
        while True: filler.write(bytes(4096))
    except OSError: pass
"""


@pytest.mark.ci
@needs_namespaces
def test_a_full_dev_shm_stops_the_recording_and_not_the_host(worker: Start, prefix: str) -> None:
    process = worker(small("1m") + FILL + 'assert os.listdir("/dev/shm") == ["filler"]\n' + HOST)
    unharmed(process, "/dev/shm or the memory cgroup is full")


@pytest.mark.ci
@needs_namespaces
def test_a_dev_shm_without_space_for_the_first_pages_is_left_unchanged(worker: Start, prefix: str) -> None:
    process = worker(small("32k") + 'brick.init()\nassert os.listdir("/dev/shm") == []\n' + HOST)
    unharmed(process, "/dev/shm or the memory cgroup is full")


@pytest.mark.ci
@needs_namespaces
def test_a_missing_dev_shm_stops_the_recording_and_not_the_host(worker: Start, prefix: str) -> None:
    process = worker(PRIVATE + 'mount(b"tmpfs", b"/dev", b"tmpfs", 0, None)\n' + HOST)
    unharmed(process, "cannot create a file in /dev/shm: No such file or directory")


@pytest.mark.ci
@needs_namespaces
def test_a_read_only_dev_shm_stops_the_recording_and_not_the_host(worker: Start, prefix: str) -> None:
    process = worker(PRIVATE + 'mount(b"tmpfs", b"/dev/shm", b"tmpfs", 1, None)\n' + HOST)
    unharmed(process, "cannot create a file in /dev/shm: Read-only file system")


@pytest.mark.ci
@needs_namespaces
def test_a_dev_shm_that_fills_up_later_turns_new_paths_into_other(worker: Start, prefix: str) -> None:
    process = worker(
        small("2m")
        + """
with brick.span("first"): pass
"""
        + FILL
        + """
for n in range(500):
    with brick.span(f"later {n % 250}"): pass
    with brick.span("first"): pass
pause()
"""
    )
    got = seen(process, prefix)
    assert exact(got) == {"begun": 1001, "summarized": 1001}
    assert counts(got)["first"] == 501
    assert counts(got)["other"] > 300, "three of four blocks of paths have no memory"
    assert got.process["blocks_refused"] > 0
    process.go()
    assert process.end() == 0
    assert process.stderr == ""


@pytest.mark.ci
@needs_namespaces
def test_a_dev_shm_that_fills_up_later_refuses_lanes_and_counts_spans(worker: Start, prefix: str) -> None:
    process = worker(
        small("2m")
        + """
import threading
def work():
    for n in range(100):
        with brick.span("b"): pass
work()
"""
        + FILL
        + """
together = threading.Barrier(4)
def meet():
    work()
    together.wait()
threads = [threading.Thread(target=meet) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
pause()
"""
    )
    got = seen(process, prefix)
    assert exact(got) == {"begun": 100, "summarized": 100, "no_lane": 400}
    assert got.process["lanes_refused"] == 4
    process.go()
    assert process.end() == 0
    assert process.stderr == ""


@pytest.mark.ci
@needs_namespaces
def test_details_without_memory_are_counted_as_dropped(worker: Start, prefix: str) -> None:
    process = worker(
        small("2m")
        + 'with brick.span("b"): pass\n'
        + FILL
        + """
os.pwrite(_core._segment_fd(), b"\\x02", 4096)
for n in range(100):
    with brick.span("b"): pass
pause()
"""
    )
    got = seen(process, prefix)
    assert exact(got) == {"begun": 101, "summarized": 101}
    assert ledger_of(got).document()["details"]["dropped"] == {"memory": 100}
    assert got.process["blocks_refused"] == 1
    process.go()
    assert process.end() == 0


@pytest.mark.ci
@needs_namespaces
def test_deferred_work_without_memory_is_dropped_and_not_pending(worker: Start, prefix: str) -> None:
    process = worker(
        small("2m")
        + 'kernel = brick.brick("kernel")\nwith kernel: pass\n'
        + FILL
        + """
assert [kernel.defer() for _ in range(100)] == [0] * 100
assert brick.pending() == 0
brick.finalize()
pause()
"""
    )
    got = seen(process, prefix)
    assert exact(got) == {"begun": 1, "summarized": 1}
    assert ledger_of(got).document()["events"]["dropped"] == {"defer": 100}
    assert got.process["blocks_refused"] == 1
    process.go()
    assert process.end() == 0


@pytest.mark.slow
@needs_namespaces
def test_sixteen_workers_fit_into_the_64_mib_of_a_container(worker: Start, prefix: str) -> None:
    process = worker(
        small("64m")
        + """
import threading
ready, gate = os.pipe(), os.pipe()
def work():
    for _ in range(100):
        for n in range(100):
            with brick.span(f"path {n}"): pass
    together.wait()
children = []
for _ in range(16):
    child = os.fork()
    if child == 0:
        os.close(gate[1])
        together = threading.Barrier(4)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        os.write(ready[1], b".")
        os.read(gate[0], 1)
        sys.exit(0)
    children.append(child)
for _ in range(16): os.read(ready[0], 1)
look()
os.close(gate[1])
report([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
report(os.listdir("/dev/shm"))
"""
    )
    found = process.next_report()
    assert len(found) == 16
    for each in found:
        assert each["spans"] == {"begun": 40_000, "summarized": 40_000}
        assert each["counts"] == {f"path {n}": 400 for n in range(100)}
        assert each["process"]["blocks_refused"] == 0
    assert process.next_report() == [0] * 16
    assert process.next_report() == [f"{prefix}removed-0"], "the segment is removed, and its record stays"
    assert process.end() == 0


@pytest.mark.slow
@needs_namespaces
def test_more_workers_than_a_container_can_hold_count_unrecorded_work(worker: Start, prefix: str) -> None:
    process = worker(
        small("4m")
        + """
ready, gate = os.pipe(), os.pipe()
children = []
for _ in range(16):
    child = os.fork()
    if child == 0:
        os.close(gate[1])
        for _ in range(10):
            for n in range(300):
                with brick.span(f"path {n}"): pass
        os.write(ready[1], b".")
        os.read(gate[0], 1)
        sys.exit(0)
    children.append(child)
for _ in range(16): os.read(ready[0], 1)
look()
os.close(gate[1])
report([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""
    )
    found = process.next_report()
    assert 0 < len(found) <= 16
    for each in found:
        assert each["spans"].get("begun", 0) == each["spans"].get("summarized", 0)
        assert each["spans"].get("begun", 0) + each["spans"].get("no_lane", 0) == 3000
    assert sum(each["process"]["blocks_refused"] for each in found) > 0
    assert process.next_report() == [0] * 16
    assert process.end() == 0
    assert len(process.stderr.splitlines()) == 16 - len(found), "each process without a segment writes one line"


# ---- a memory cgroup ---------------------------------------------------------------------------------------------

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory cgroup of 32 MiB."""
    root = V1 if (V1 / "memory.limit_in_bytes").exists() else V2
    folder = root / f"brickd-test-{uuid.uuid4().hex[:8]}"
    limit = folder / ("memory.limit_in_bytes" if root == V1 else "memory.max")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"needs a memory cgroup that may be made: {error}")
    try:
        if not limit.exists():
            pytest.skip(f"needs the memory controller, {limit} is not there")
        limit.write_text(str(32 << 20))
        yield folder
    finally:
        folder.rmdir()


# The worker fills its control group until `left` bytes are free.
FILLING = """
group = os.environ["GROUP"]
import mmap
def number(file):
    return int(open(group + "/" + file).read())
def room():
    if os.path.exists(group + "/memory.max"):
        return number("memory.max") - number("memory.current")
    return number("memory.limit_in_bytes") - number("memory.usage_in_bytes")
def fill(left):
    while room() > left + 65536:
        piece = mmap.mmap(-1, 65536)
        piece.write(bytes(65536))
        filler.append(piece)
filler = []
"""
GREEDY_SPANS = 2700


def greedy(threads: int) -> str:
    """Start a worker with more threads, paths and spans than memory allows; it pauses when all threads exist."""
    return f"""
import threading
bricks = [brick.brick(f"path {{n}}") for n in range(900)]
together = threading.Barrier({threads + 1})
def work():
    together.wait()
    for _ in range({GREEDY_SPANS} // len(bricks)):
        for each in bricks:
            with each: pass
    together.wait()
    together.wait()
threads = [threading.Thread(target=work) for _ in range({threads})]
for thread in threads: thread.start()
together.wait()
together.wait()
pause()
together.wait()
for thread in threads: thread.join()
sys.exit(5)
"""


JOINING = 'open(os.environ["GROUP"] + "/cgroup.procs", "w").write(str(os.getpid()))\n' + FILLING


def kills(group: Path) -> int:
    """Return how many processes the kernel killed because of the memory limit of this group."""
    events = group / ("memory.oom_control" if (group / "memory.oom_control").exists() else "memory.events")
    return int(dict(line.split() for line in events.read_text().splitlines())["oom_kill"])


@pytest.mark.ci
def test_a_full_memory_cgroup_stops_the_recording_and_not_the_host(worker: Start, prefix: str, group: Path) -> None:
    # The agent leaves 1 MiB to its host. With only 0.5 MiB, the host itself sometimes exceeded the limit and was killed
    # by the kernel.
    process = worker(JOINING + "fill(1 << 20)\n" + HOST, GROUP=str(group))
    unharmed(process, "/dev/shm or the memory cgroup is full")
    assert kills(group) == 0
    assert list(SHM.glob(prefix + "*")) == []


def test_a_canary_is_refused_if_its_memory_cgroup_has_not_twice_the_need(worker: Start, group: Path) -> None:
    source = """
from brick_agent._torch.canary import refusal
def refused(need):
    try:
        refusal.check_memory(need)
    except refusal.RefusalError as error:
        return str(error)
report([_core._memory_allows(1 << 20), _core._memory_allows(32 << 20), refused(0)])
"""
    process = worker(JOINING + source, GROUP=str(group))
    assert process.next_report() == [True, False, "memory: less than 64 MiB are left, twice the need of a slice"]
    assert (process.end(), process.stderr) == (0, "")


@pytest.mark.ci
def test_lanes_and_paths_are_refused_before_a_memory_cgroup_kills(worker: Start, prefix: str, group: Path) -> None:
    process = worker(
        JOINING
        + """
for n in range(900):
    with brick.brick(f"path {n}"): pass
fill(4 << 20)
"""
        + greedy(8),
        GROUP=str(group),
    )
    process.paused()
    got = reading(prefix)
    spans = exact(got)
    assert spans["begun"] == spans["summarized"]
    assert spans["begun"] + spans.get("no_lane", 0) == 900 + 8 * GREEDY_SPANS
    assert got.process["blocks_refused"] > 0
    assert counts(got).get("other", 0) > 0 or spans.get("no_lane", 0) > 0
    assert kills(group) == 0
    process.go()
    assert process.end() == 5
    assert process.stderr == ""
