"""Checksums that threads and forked children record. Checksums that are refused (there is no room, or the tensor is
unreadable) are counted.
"""

from __future__ import annotations

import pytest
from checksums import NUMBERS, UNSEEN, lost, places, recorded
from conftest import reading, readings
from faults import Start, counts
from recorded import events, sites
from verbs import brickd, document

from brickd.shm.ledger import ledger_of
from brickd.shm.losses import losses

# ---- threads, forks ----------------------------------------------------------------------------------------------


def test_each_thread_has_its_own_counts_and_all_share_the_sites(worker: Start, prefix: str) -> None:
    _, found, known, _ = recorded(
        worker,
        prefix,
        """
import threading
begin = threading.Barrier(4)
def work():
    begin.wait()
    for n in range(50):
        brick.checksum("a", y, layer=n % 5, input=x)
        brick.checksum("b", y, layer=n % 5)
    begin.wait()  # none has another's lane
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
""",
    )
    assert {site[:2] for site in known if site} == {(name, layer) for name in "ab" for layer in range(5)}
    assert len(found) == 400
    assert sorted(places(known, found)) == sorted(
        (name, layer, 0, position) for name in "ab" for layer in range(5) for position in range(10) for _ in range(4)
    )


def test_a_forked_child_has_its_parents_sites_and_key_and_new_counts(worker: Start, prefix: str) -> None:
    process = worker(
        NUMBERS
        + """
brick.checksum("k", y, layer=1)
brick.checksum("token", y)
os.unlink(os.environ["BRICKD_STATE_DIR"] + "/key")
if os.fork() == 0:
    brick.checksum("k", y, layer=1)
    brick.checksum("token", y)
    brick.checksum("new", y)
    pause()
    os._exit(0)
brick.checksum("other", y)
pause()
"""
    )
    process.paused()
    process.paused()
    parent, child = readings(prefix)
    assert sites(parent)[:2] == sites(child)[:2] == [("k", 1, False), ("token", -1, True)]
    assert places(sites(child), events(child)) == [("k", 1, 0, 0), ("new", -1, 0, 0)]
    assert len({each["tensors"][0]["checksum"] for of in (parent, child) for each in events(of)}) == 1
    assert parent.process["key"] == child.process["key"] != 0
    process.go()
    process.go()
    assert process.end() == 0


# ---- refused checksums ---------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_a_full_ring_drops_complete_checksums_and_reserves_space_for_ends(worker: Start, prefix: str) -> None:
    got, found, _, _ = recorded(
        worker,
        prefix,
        """
for n in range(2000):
    brick.checksum("k", y, input=x)
id = brick.brick("d").defer()
brick.finalize()
""",
    )
    room = (4096 - 512) // 6
    checked = [each for each in found if each["kind"] == "checked"]
    assert [each["position"] for each in checked] == list(range(room))
    assert {each["tensors"][1]["checksum"] for each in checked} == {checked[0]["tensors"][1]["checksum"]}
    assert lost(got) == 2000 - room
    ((_, lane, _),) = got.lanes
    assert lane["event_attempts"] == lane["event_records"] + sum(lane["event_dropped"])


def test_while_a_ring_is_full_no_tensor_is_read_and_all_are_counted(worker: Start, prefix: str) -> None:
    got, found, _, _ = recorded(
        worker,
        prefix,
        UNSEEN
        + """
import struct
for n in range(600):
    brick.checksum("k", y, input=x)
head = 6 * ((4096 - 512) // 6)
before = brick.take("k", Watched())
brick.checksum("k", Watched(), input=[Watched()])
os.pwrite(_core._segment_fd(), struct.pack("<2Q", head, 2**64 - 1 - head), 8192 + 16)
brick.checksum("k", y, input=before)
""",
    )
    room = (4096 - 512) // 6
    assert lost(got) == 600 - room + 1
    last = found[-1]
    assert (last["sequence"], last["position"]) == (602, 601)
    assert [tensor["dtype"] for tensor in last["tensors"]] == [12, 0]
    assert got.process["tensors_refused"] == 0


def test_positions_continue_over_dropped_checksums(worker: Start, prefix: str) -> None:
    got, found, _, _ = recorded(
        worker, prefix, "for t in (y, object(), y, np.array(['x']), y): brick.checksum('k', t, step=4)"
    )
    assert [each["position"] for each in found] == [0, 2, 4]
    assert (lost(got), got.process["tensors_refused"]) == (0, 2)


def test_an_unreadable_tensor_is_neither_a_loss_nor_a_gap_of_the_ring(worker: Start, prefix: str) -> None:
    process = worker(
        NUMBERS
        + """
unread = object()
brick.checksum("k", y)
brick.checksum("k", unread, input=x)
brick.checksum("k", brick.take("k", unread), input=unread)
brick.checksum("k", y, input=[unread, x])
os.environ["BRICKD_STRICT"] = "1"
for output, input in ((unread, None), (y, unread)):
    try: brick.checksum("k", output, input=input)
    except TypeError: pass
del os.environ["BRICKD_STRICT"]
brick.checksum("k", y)
pause()
""",
        BRICKD_SERVICE="api",
    )
    process.paused()
    got = reading(prefix)
    found = events(got)
    assert [(each["position"], each["sequence"]) for each in found] == [(0, 1), (3, 2), (6, 3)]
    assert [tensor["dtype"] for tensor in found[1]["tensors"]] == [12, 0, 12]
    assert (lost(got), got.process["tensors_refused"]) == (0, 6)
    (loss,) = losses(got, ledger_of(got))
    assert str(loss) == "6 tensors could not be read: on a device, or of a type that has no fingerprint"
    (problem,) = document("status")["problems"]
    assert (problem["text"], problem["command"]) == (f"api/0: {loss}", "brickd inspect api/0")
    assert ", 6 tensors that cannot be read, " in brickd("coverage").stdout.splitlines()[0]


def test_memory_for_visit_counts_is_requested_rarely(worker: Start, prefix: str) -> None:
    got, found, _, _ = recorded(
        worker,
        prefix,
        """
import resource
brick.checksum("k", y, position=0)
with open("/proc/self/statm") as statm: pages = int(statm.read().split()[0])
unlimited = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (4096 * pages, unlimited[1]))
for _ in range(5): brick.checksum("k", y)
brick.checksum("k", y, position=1)
resource.setrlimit(resource.RLIMIT_AS, unlimited)
for _ in range(9): brick.checksum("k", y)
""",
    )
    # The agent asks for memory at the first, second, fourth and eighth checksum. A position that the host gives needs
    # no memory.
    assert [(each["position"], each["flags"]) for each in found] == [(0, 1), (1, 1), *((n, 0) for n in range(7))]
    assert lost(got) == 7


def test_sites_above_the_limit_are_refused_and_counted(worker: Start, prefix: str) -> None:
    got, found, _, _ = recorded(
        worker,
        prefix,
        """
for n in range(5000):
    brick.checksum("k", b"", layer=n)
brick.checksum("k", b"", layer=7)
with brick.span("spans go on"), brick.layer(3):
    with brick.span("below"): pass
""",
    )
    assert got.process["sites"] == got.header["sites"] == 2048
    assert got.process["sites_refused"] == 5000 - 2048
    assert len(found) + lost(got) == 5001
    assert {"spans go on", "below"} <= {got.name(path.name) for path in got.paths if path}


@pytest.mark.parametrize(
    ("text", "set_to", "room"), [("", "100", 128), ("brick.init(sites=192)", "100", 192), ("", "99999", 16384)]
)
def test_the_number_of_sites_is_configured_like_other_sizes(
    worker: Start, prefix: str, text: str, set_to: str, room: int
) -> None:
    program = text + "\nfor n in range(200): brick.checksum('k', b'', layer=n)"
    got, _, _, _ = recorded(worker, prefix, program, BRICKD_SITES=set_to)
    assert got.header["sites"] == room
    assert (got.process["sites"], got.process["sites_refused"]) == (min(200, room), max(200 - room, 0))


@pytest.mark.parametrize(("set_to", "slots"), [("5000", 8192), ("8192", 8192), ("1", 1), ("999999999", 1 << 20)])
def test_the_number_of_event_slots_is_configured_and_a_power_of_two(
    worker: Start, prefix: str, set_to: str, slots: int
) -> None:
    got, *_ = recorded(worker, prefix, "brick.init()", BRICKD_EVENTS=set_to)
    assert got.header["event_slots"] == slots


def test_a_span_below_other_does_not_use_the_path_of_a_site(worker: Start, prefix: str) -> None:
    got, _, _, _ = recorded(
        worker,
        prefix,
        """
b = brick.brick("b")
for n in range(70):
    brick.checksum(b, y, layer=n)
with brick.span("kept"): pass
for n in range(100):
    with brick.layer(n), brick.span("a"): pass
with brick.layer(99), brick.span("a"), brick.layer(5), b: pass
""",
        BRICKD_PATHS="64",
    )
    assert counts(got) == {"kept": 1, "a": 62, "other": 40}


HOSTILE = """
class Raises:
    def __init__(self, error): self.error = error
    def __dlpack_device__(self): raise self.error
    def __dlpack__(self, **_): raise self.error
class Strange:
    def __dlpack_device__(self): return (2, 0)
    def __dlpack__(self, **_): return None
class Nothing:
    def __getattr__(self, name): raise RuntimeError(name)
    def __repr__(self): raise RuntimeError("repr")
deep = []
for _ in range(100_000): deep = [deep]
strange = [Raises(ValueError("\\ud800")), Raises(MemoryError()), Strange(), Nothing(), None, 3, "text"]
strange += [np.array([1j]), np.array([{}])]
"""


@pytest.mark.ci
def test_a_checksum_ended_by_an_interrupt_counts_as_dropped(worker: Start, prefix: str) -> None:
    got, found, _, _ = recorded(
        worker,
        prefix,
        HOSTILE
        + """
for output, input in ((y, x), (Raises(KeyboardInterrupt()), x), (y, Raises(SystemExit())), (y, x)):
    try: brick.checksum("k", output, input=input)
    except BaseException: pass
""",
    )
    assert [each["position"] for each in found] == [0, 3]
    assert lost(got) == 2


@pytest.mark.ci
def test_no_argument_raises_an_exception(worker: Start, prefix: str) -> None:
    process = worker(
        NUMBERS
        + HOSTILE
        + """
for one in strange:
    assert brick.checksum("k", one) is None
    assert brick.checksum("k", y, input=one) is None
    assert brick.checksum("k", y, input=[one, x]) is None
    brick.take("k", one)
    for word in ("layer", "position", "step", "relation", "valid", "backend", "params"):
        assert brick.checksum("k", y, **{word: one}) is None
        assert brick.checksum(word, y, **{word: float("nan")}) is None
        assert brick.checksum(word, y, **{word: -1}) is None
for relation in ("", "replicated", "replicated:", "moved", "everywhere:1", "local:x", "partial:\\ud800"):
    brick.checksum("k", y, relation=relation)
brick.checksum("k", y, params=deep)
brick.checksum("\\ud800", y)
brick.checksum("", y)
brick.checksum(None, y)
brick.checksum("k", y, valid=4)
pause()
"""
    )
    process.paused()
    got = reading(prefix)
    assert all(each["relation"] == 0 for each in events(got) if each["kind"] == "checked")
    ((_, lane, _),) = got.lanes
    assert lane["event_attempts"] == lane["event_records"] + sum(lane["event_dropped"])
    assert lane["amounts"] > 0
    assert got.process["tensors_refused"] > 0
    process.go()
    assert process.end() == 0
    first, *others = process.stderr.splitlines()
    assert first.startswith("brickd: a tensor has no checksum: ")
    kinds = [line.partition(", not ")[0].removeprefix("brickd: a ").split()[0] for line in others]
    assert kinds == ["layer", "position", "step", "relation", "backend", "name"], (
        "each kind of problem is reported once"
    )


@pytest.mark.ci
def test_the_message_of_an_unreadable_tensor_is_requested_once(worker: Start, prefix: str) -> None:
    _, _, _, reported = recorded(
        worker,
        prefix,
        HOSTILE
        + """
class Asked(Exception):
    def __str__(self): asked.append(1); return "why"
asked = []
for _ in range(3): brick.checksum("k", Raises(Asked()))
reported = asked
""",
    )
    assert reported == [1]


@pytest.mark.parametrize(
    "call",
    [
        "brick.checksum('k', object())",
        "brick.checksum('k', y, input=object())",
        "brick.checksum('k', y, valid=4)",
        "brick.checksum('k', y, relation='near')",
        "brick.checksum('k', y, layer=-1)",
        "brick.checksum('k', y, params=object())",
        "brick.checksum('k', y, stateful='no')",
        "brick.checksum('k', y, position=1.5)",
        "brick.take('k', object())",
    ],
)
def test_strict_mode_raises_mistakes(worker: Start, call: str) -> None:
    process = worker(NUMBERS + f"try: {call}\nexcept (TypeError, ValueError): pause()", BRICKD_STRICT="1")
    process.paused()
    process.go()
    assert process.end() == 0


@pytest.mark.ci
def test_an_interrupt_is_not_swallowed(worker: Start) -> None:
    source = """
class Asked:
    __dlpack__ = None
    def __getattr__(self, name): raise KeyboardInterrupt
for tensor in (Raises(KeyboardInterrupt()), Asked()):
    try: brick.checksum("k", tensor)
    except KeyboardInterrupt: pause()
"""
    process = worker(NUMBERS + HOSTILE + source)
    process.paused()
    process.go()
    process.paused()
    process.go()
    assert process.end() == 0
