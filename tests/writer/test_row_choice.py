"""All workers choose the same rows, which depend on the content and the epoch. Each row is recorded together with its
input row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chosen_rows
import numpy as np
import pytest
from c_calls import c_calls
from checksums import lost
from conftest import reading
from epochs import EPOCH, drawn, give
from faults import Compile, Start
from fingerprints import Bytes
from recorded import checked, is_of_rows

from brickd.shm import _reader
from brickd.shm.segment_copy import Reading

Run = Callable[..., tuple[Any, Reading]]
WINDOWS = {3: 4, 40: 8, 5: 32, 23: 512}  # some epochs, and the number of positions that are preferred in each
PREPARED = """
import mmap
import numpy as np
kernel = name("kernel")
result = None
"""


OWN = 2**32 // 64
STEPS = """
def wanted(step, rate, kernel=kernel):
    at = None if step is None else byref(At(step=ctypes.pointer(c_uint64(step))))
    return w.brick_rows_wanted(kernel, None, at, rate)
"""


@pytest.fixture
def run(worker: Start, compiled: Compile, prefix: str) -> Run:
    """Run a program in an epoch; return its report and the reading of its segment at the end."""

    def program(source: str, epoch: int = EPOCH, **environment: str) -> tuple[Any, Reading]:
        own = f"{prefix}{len(started)}"
        started.append(own)
        begin = f"{c_calls(compiled)}\nw.brick_init(None)\npause()\n{PREPARED}"
        process = worker(f"{begin}{source}\nreport(result)\npause()\n", BRICKD_SHM_PREFIX=own, **environment)
        process.paused()
        give(reading(own).file, epoch)
        process.go()
        reported = process.next_report()
        process.paused()
        return reported, reading(own)

    started: list[str] = []
    return program


def test_the_epochs_of_these_tests_have_different_windows() -> None:
    assert {epoch: chosen_rows.window(epoch) for epoch in WINDOWS} == WINDOWS


# ---- the choice of rows

BATCHES = [
    "N(8)", "N(1, 8)", "N(3, 8)", "N(40, 8)", "N(2, 9, 8)", "N(5, 1, 8)", "N(2, 30, 3, 8)", "N(2, 5, 2, 3, 8)",
    "N(3, 7, 8).transpose(1, 0, 2)", "N(6, 20, 16)[::-2, ::3, 8:]", "N(9, 8)[::-1]",
    "N(5, 3, 16)[..., ::2]", "N(8, 20).T", "N(2, 9, 6)[..., ::-2]",
    "np.broadcast_to(N(1, 4, 8), (3, 4, 8))", "N(7, 3)", "N(2, 7, 1)", "np.full((3, 5, 8), np.nan, D)",
    "np.zeros((3, 5, 8), D)", "np.concatenate([N(2, 6, 8)] * 2)",
    "np.concatenate([np.zeros((2, 6, 8), D), N(2, 30, 8)], 1)",
    "np.concatenate([np.zeros((2, 6, 4), D), N(2, 6, 4)], -1)", "N(2, 3000, 4)", "N(3, 2000, 4)[:, ::-1]", "N(6000, 4)",
]  # fmt: skip
MAKER = """
def batches(of, kind):
    random = np.random.default_rng(7)
    def numbers(*shape): return random.standard_normal(shape).astype(kind)
    return [eval(each, {"np": np, "N": numbers, "D": kind}) for each in of]
"""


def batches(kind: str) -> list[Bytes]:
    """Return the same batches as in the worker."""
    scope: dict[str, Any] = {"np": np}
    exec(MAKER, scope)
    made: list[Bytes] = scope["batches"](BATCHES, kind)
    return made


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "code"), [("f", 12), ("d", 13), ("e", 10)])
@pytest.mark.parametrize("epoch", WINDOWS)
def test_rows_are_chosen_by_position_content_and_epoch(run: Run, epoch: int, kind: str, code: int) -> None:
    reported, _ = run(
        f"""{MAKER}
result = []
for each in batches({BATCHES!r}, {kind!r}):
    rows = chosen(of_array(each, {code}))
    flat = each.reshape(-1, each.shape[-1])
    same = [rows.inputs[n].checksum == take(kernel, tensor=of_array(flat[rows.at[n]].copy(), {code}))[0].checksum
            for n in range(rows.count)]
    result.append([list(rows.at[:rows.count]), rows.rows, all(same), [rows.inputs[n].dims for n in range(rows.count)]])
""",
        epoch,
    )
    for source, batch, (at, rows, same, dims) in zip(BATCHES, batches(kind), reported, strict=True):
        assert at == chosen_rows.chosen(batch, epoch), source
        assert (rows, same, set(dims)) == (batch.size // batch.shape[-1], True, {1}), source
        assert 1 <= len(at) <= 4, source


def test_equal_rows_within_a_batch_are_recorded_once(run: Run) -> None:
    reported, _ = run("""
row = np.arange(8, dtype="f")
result = [chosen(of_array(np.stack(rows))).count for rows in
          ([row] * 9, [row, row + 1] * 9, [row * np.nan] * 5, [row * 0] * 5, [row, row * 0, row * np.nan] * 3)]
""")
    assert reported == [1, 2, 1, 1, 3]


@pytest.mark.ci
def test_workers_with_a_shared_beginning_choose_the_same_rows_of_it(run: Run) -> None:
    """The batches differ in the number, the length and the last tokens of their sequences, but all sequences begin
    alike.
    """
    source = """
R = np.random.default_rng(5)
beginning = R.standard_normal((20, 8)).astype("f")
R = np.random.default_rng({seed})
def one(): return np.concatenate([beginning, R.standard_normal(({length} - 20, 8)).astype("f")])
rows = chosen(of_array(np.stack([one() for _ in range({sequences})])))
result = [rows.inputs[n].checksum for n in range(rows.count)]
"""
    (first, _), (second, _), (other, _) = (
        run(source.format(seed=seed, length=length, sequences=sequences), 40)
        for seed, length, sequences in ((1, 25, 2), (2, 70, 5), (3, 25, 1))
    )
    assert sorted(first) == sorted(second) == sorted(other)
    assert len(set(first)) == 4


@pytest.mark.ci
def test_another_epoch_chooses_other_rows(run: Run) -> None:
    source = "result = list(chosen(of_array(np.random.default_rng(1).standard_normal((400, 8)).astype('f'))).at)"
    found = {tuple(run(source, epoch)[0]) for epoch in (23, 0, 32)}  # these epochs prefer the same positions
    assert len(found) == 3


@pytest.mark.parametrize("source", ["np.zeros((0, 8), 'f')", "np.zeros((3, 0), 'f')", "np.zeros((), 'f')"])
def test_of_a_tensor_without_rows_none_are_chosen(run: Run, source: str) -> None:
    reported, got = run(f"""
x = of_array({source})
rows = chosen(x)
result = rows.count, w.brick_rows_record(kernel, None, None, byref(x), byref(rows))
""")
    assert (reported, checked(got), lost(got)) == ([0, 0], [], 0)


def test_of_a_tensor_without_memory_or_with_padding_none_are_chosen(run: Run) -> None:
    reported, _ = run("""
x = of_array(np.ones((4, 8), "f"))
padded, gone = of_array(np.ones((4, 8), "f")), of_array(np.ones((4, 8), "f"))
padded.valid, gone.data = 2, None
result = [chosen(each).count for each in (x, padded, gone)]
""")
    assert reported == [1, 0, 0]


def test_exactly_4096_rows_are_looked_at_the_first_positions_of_each_sequence(run: Run) -> None:
    """If a row beyond the 4,096 were read, the worker would die. All rows except the last one are equal, so the search
    cannot end early.
    """
    reported, _ = run(
        """
PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None)
libc.mprotect.argtypes = c_void_p, ctypes.c_size_t, ctypes.c_int
def looked_at(*shape):
    size = 4096 * 16
    memory = mmap.mmap(-1, size + PAGE)
    array = np.frombuffer(memory, "f", size // 4).reshape(-1, 4)
    array[:] = 1
    array[-1] = 2  # the last position of the last sequence
    assert libc.mprotect(array.ctypes.data + size, PAGE, 0) == 0
    # A sequence has more positions than may be examined; the next one begins where the examined ones end.
    strides = 4096 // shape[0] * 16, 16, 4
    numbers = (ctypes.c_int64 * 6)(*shape, *strides)
    data = array.ctypes.data, 12, 3, ctypes.addressof(numbers), ctypes.addressof(numbers) + 24, 2**64 - 1
    rows = chosen(Tensor(*data))
    return sorted(rows.at[:rows.count])
result = [looked_at(1, 1_000_000, 4), looked_at(2, 500_000, 4)]
""",
        5,
    )
    assert reported == [[0, 4095], [0, 500_000 + 2047]]


# ---- the record


def test_rows_are_recorded_in_pairs_with_their_call(run: Run) -> None:
    reported, got = run("""
x = np.random.default_rng(1).standard_normal((3, 7, 8)).astype("f")
y = np.random.default_rng(2).standard_normal((7, 3, 24)).astype("f").transpose(1, 0, 2)[..., ::2]  # odd strides
layer, step = c_uint32(3), c_uint64(17)
at = At(layer=ctypes.pointer(layer), step=ctypes.pointer(step), backend=name("CPU"), params=9)
tensor, output = of_array(x), of_array(y)
rows = chosen(tensor)
x[:] = 0  # the call overwrites its input
fnv1a = take(kernel, tensor=of_array(y.reshape(-1, 12)[rows.at[0]].copy()))[0].fnv1a
result = [fnv1a, w.brick_rows_record(kernel, None, byref(at), byref(output), byref(rows))]
w.brick_rows_record(kernel, None, byref(At(layer=ctypes.pointer(c_uint32(2**24)))), byref(output), byref(rows))
at_rows = list(rows.at)
def sums(array): return take(kernel, tensor=of_array(array.copy()))[0].checksum
x = np.random.default_rng(1).standard_normal((3, 7, 8)).astype("f")
for n in at_rows:
    result += [sums(y.reshape(-1, 12)[n]), sums(x.reshape(-1, 8)[n])]
""")
    fnv1a, outcome, *sums = reported
    ((site, first), (other, second)) = checked(got)
    assert (outcome, site, other) == (0, ("kernel", 3, False), ("kernel", -1, False))
    assert [tensor["checksum"] for tensor in first["tensors"]] == sums
    assert [tensor["elements"] for tensor in first["tensors"]] == [12, 8] * 4
    assert (first["inputs"], first["position"], first["valid"], first["params"]) == (7, 21, 2**64 - 1, 9)
    assert (first["relation"], got.name(first["backend"]), first["step"]) == (0, "CPU", 17)
    assert [each["flags"] for each in (first, second)] == [
        _reader.CHECKED_ROWS | _reader.CHECKED_STATELESS | flag for flag in (_reader.CHECKED_STEP, 0)
    ]
    output = first["output"]
    assert (output["dims"], output["shape"][0], output["fnv1a"]) == (1, 12, fnv1a)
    assert second["backend"] == 0
    ((_, lane, _),) = got.lanes
    assert lane["amounts"] == 1, "the invalid layer is counted as a wrong argument"
    assert lost(got) == 0


@pytest.mark.parametrize(("rows", "inputs"), [(1, 1), (2, 3), (3, 5), (4, 7), (5, 7)])
def test_a_call_of_few_rows_has_a_short_record(run: Run, rows: int, inputs: int) -> None:
    _, got = run(f"""
x = of_array(np.arange({rows} * 8, dtype="f").reshape({rows}, 8))
recorded_rows(kernel, x, x)
""")
    ((_, found),) = checked(got)
    assert (found["inputs"], found["slots"], found["position"]) == (inputs, 2 + 2 * (inputs + 1), rows)
    assert [tensor["checksum"] for tensor in found["tensors"][::2]] == [
        tensor["checksum"] for tensor in found["tensors"][1::2]
    ]


@pytest.mark.parametrize("shape", [(3, 7), (7, 3, 8), (21, 8), (3, 7, 1, 8), (3, 0, 8), (3, 6, 8)])
def test_an_output_with_other_rows_is_not_recorded_and_not_counted(run: Run, shape: tuple[int, ...]) -> None:
    reported, got = run(f"""
result = recorded_rows(kernel, of_array(np.ones((3, 7, 8), "f")), of_array(np.ones({shape}, "f")))
""")
    assert (reported, checked(got), lost(got)) == (0, [], 0)


def test_rows_leave_half_of_the_ring_free_and_are_then_not_attempted(run: Run) -> None:
    """The last record of rows leaves exactly half of the ring free. After that, other records still have room."""
    reported, got = run(
        """
x = of_array(np.arange(32, dtype="f").reshape(4, 8))
for _ in range(60):
    recorded_rows(kernel, x, x)
for n in range(200):
    checksum(kernel)
    if n == 3:  # no row is read now
        numbers = (ctypes.c_int64 * 2)(4, 8)
        result = chosen(Tensor(8, 12, 2, ctypes.addressof(numbers), None, 2**64 - 1)).count
""",
        BRICKD_EVENTS="1024",
    )
    most = (1024 - 512) // 18
    assert reported == 0
    whole = (1024 - 128 - most * 18) // 4
    assert sum(is_of_rows(each) for _, each in checked(got)) == most
    assert sum(not is_of_rows(each) for _, each in checked(got)) == whole
    assert lost(got) == 200 - whole, "only fingerprints of whole tensors are lost"


@pytest.mark.parametrize(("deferred", "records"), [(0, 10), (1, 9)], ids=["exactly half", "one slot less"])
def test_rows_of_fewer_slots_find_room_until_half_is_used(run: Run, deferred: int, records: int) -> None:
    _, got = run(
        f"""
x = of_array(np.arange(8, dtype="f").reshape(1, 8))
checksum(kernel)
for _ in range({deferred}):
    w.brick_defer(kernel, None, c_uint64(0), None, c_uint64(0), c_uint64(0), None)
for _ in range(20):
    recorded_rows(kernel, x, x)
""",
        BRICKD_EVENTS="128",
    )
    ((_, lane, _),) = got.lanes
    assert (lane["event_records"], lane["event_head"]) == (1 + deferred + records, 4 + deferred + 6 * records)
    assert lost(got) == 0


# ---- the choice of steps and sites


@pytest.mark.parametrize(
    ("configured", "of"),
    [({}, 8), ({"BRICKD_FINGERPRINTS": "1/64"}, 8), ({"BRICKD_FINGERPRINTS": "1/256"}, 32)],
    ids=["default", "1/64", "1/256"],
)
def test_rows_are_wanted_in_eight_times_as_many_steps(run: Run, configured: dict[str, str], of: int) -> None:
    reported, _ = run(f"{STEPS}\nresult = [wanted(n, {OWN}) for n in range(400)] + [wanted(None, {OWN})]", **configured)
    assert reported == [int(drawn(n, of)) for n in range(400)] + [0]
    assert 0 < sum(reported) < 100


@pytest.mark.parametrize(
    ("configured", "steps", "outside"),
    [("all", 1, 1), ("off", 0, 0), ("1/8", 1, 0), ("1/2", 1, 0), ("1/9", None, 0)],
)
def test_a_high_rate_takes_rows_of_each_step_and_off_of_none(
    run: Run, configured: str, steps: int | None, outside: int
) -> None:
    reported, _ = run(
        f"{STEPS}\nresult = [wanted(n, {OWN}) for n in range(100)], wanted(None, {OWN})", BRICKD_FINGERPRINTS=configured
    )
    assert set(reported[0]) == ({0, 1} if steps is None else {steps})
    assert reported[1] == outside


def test_rows_of_a_site_that_is_off_are_neither_wanted_nor_recorded(run: Run) -> None:
    reported, got = run(f"""{STEPS}
off = name("lm_head")
x = of_array(np.ones((4, 8), "f"))
result = [wanted(1, 2**32 - 1, off), recorded_rows(off, x, x), wanted(1, 2**32 - 1)]
w.brick_enable(0)
result += [wanted(1, 2**32 - 1), chosen(x).count]
""")
    assert (reported, checked(got), lost(got)) == ([0, 0, 1, 0, 0], [], 0)


# ---- turns


@pytest.mark.parametrize("epoch", WINDOWS)
def test_the_turn_is_the_epochs_in_all_workers(run: Run, epoch: int) -> None:
    counts = [1, 2, 3, 8, 9, 16]
    reported, _ = run(f"result = [[w.brick_rows_turn(n, of) for n in range(of)] for of in {counts}]", epoch)
    assert reported == [[int(n == chosen_rows.turn(epoch, of)) for n in range(of)] for of in counts]


@pytest.mark.parametrize("turns", [1, 2, 3, 7, 8, 9, 20])
def test_each_turn_comes_in_each_block_and_meets_each_draw_of_a_step(turns: int) -> None:
    """At the rate 1/8, a step is sampled in every eighth epoch of a block of 64."""
    block = -(-turns // 8) * 8
    for first in range(0, 40 * block, block):
        assert {chosen_rows.turn(first + n, turns) for n in range(block)} == set(range(turns))
    for phase in range(8):
        assert {chosen_rows.turn(8 * n + phase, turns) for n in range(400)} == set(range(turns))
