"""Checksums: the fingerprints of a kernel's tensors are in the event ring, with all their metadata."""

from __future__ import annotations

import platform

import pytest
from checksums import DTYPES, NUMBERS, lost, places, recorded
from conftest import readings
from faults import Start, counts
from recorded import events
from verbs import brickd

from brickd.shm import _reader


def test_recorded_checksums_are_fingerprints_with_the_services_key(worker: Start, prefix: str) -> None:
    _, found, _, reported = recorded(
        worker,
        prefix,
        """
y[1, 2] = np.nan; y[0, 0] = -np.inf
z = np.arange(-5, 5, dtype="b")
big = np.arange(1 << 19, dtype="f")
for tensor in (y, z, big, y[:, ::-2], y.T.astype("d"), np.zeros((2, 0, 3), "f")):
    brick.checksum("kernel", tensor, input=[x, z])
reported = [[*(fingerprint_fields(brick.fingerprint(a, key=key())) for a in (t, x)), list(t.shape)]
        for t in (y, z, big, y[:, ::-2], y.T.astype("d"), np.zeros((2, 0, 3), "f"))]
""",
    )
    assert len(found) == len(reported) == 6
    for each, (output, first, shape) in zip(found, reported, strict=True):
        assert (list(each["output"]["shape"][: each["output"]["dims"]]), each["inputs"]) == (shape, 2)
        for tensor, wanted in ((each["tensors"][0], output), (each["tensors"][1], first)):
            checksum, _, dtype, elements, *rest = wanted
            assert (f"{tensor['checksum']:016x}", DTYPES[tensor["dtype"]], tensor["elements"]) == (
                checksum, dtype, elements,
            )  # fmt: skip
            assert [tensor[name] for name in ("nan", "pos_inf", "neg_inf", "mean", "l2")] == [*rest[:3], *rest[5:7]]
            assert [tensor["min"], tensor["max"]] == pytest.approx(rest[3:5])
            assert list(tensor["places"]) == rest[7:]
        assert f"{each['output']['fnv1a']:016x}" == output[1]
    # the float64 tensor has the same numbers as the float32 tensor, but must have another checksum
    assert len({each["tensors"][0]["shape"] for each in found}) == 6


def test_a_checksum_has_the_layer_and_step_of_its_creation(worker: Start, prefix: str) -> None:
    got, found, known, _ = recorded(
        worker,
        prefix,
        """
b = brick.brick("handle")
brick.checksum("plain", y)
with brick.step(17), brick.layer(3):
    for _ in range(2):
        brick.checksum("plain", y)
        brick.checksum(b, y, layer=5, step=18)
    brick.checksum(b, y, position=70)
    brick.checksum("plain", y)
with brick.step(18), brick.layer(3):
    brick.checksum("plain", y)
""",
    )
    assert places(known, found) == [
        ("plain", -1, 0, 0),
        ("plain", 3, 17, 0),
        ("handle", 5, 18, 0),
        ("plain", 3, 17, 1),
        ("handle", 5, 18, 1),
        ("handle", 3, 17, 70),
        ("plain", 3, 17, 2),
        ("plain", 3, 18, 0),
    ]
    assert [each["flags"] for each in found] == [0, 2, 2, 2, 2, 3, 2, 2]
    assert got.process["sites"] == 4


def test_statefulness_is_recorded_if_the_host_gives_it(worker: Start, prefix: str) -> None:
    _, found, _, _ = recorded(
        worker,
        prefix,
        """
for stateful in (None, False, True, 1, "no"):
    brick.checksum("attn", y, stateful=stateful)
""",
    )
    assert [each["flags"] for each in found] == [0, 16, 32, 32, 32]


def test_step_0_is_a_step_and_differs_from_none(worker: Start, prefix: str) -> None:
    _, found, known, _ = recorded(
        worker,
        prefix,
        """
brick.checksum("k", y)
with brick.step(0):
    brick.checksum("k", y)
    with brick.layer(3), brick.span("around"), brick.span("within", step=None):
        brick.checksum("k", y)
    with brick.span("another", step=5):
        brick.checksum("k", y)
    brick.checksum("k", y, layer=3)
with brick.span("none"):
    brick.checksum("k", y)
    brick.checksum("k", y, step=0)
with brick.step(4), brick.span("first", step=0):
    brick.checksum("k", y)
""",
    )
    assert [(*place[1:], each["flags"]) for place, each in zip(places(known, found), found, strict=True)] == [
        (-1, 0, 0, 0),
        (-1, 0, 0, 2),
        (3, 0, 0, 2),
        (-1, 5, 0, 2),
        (3, 0, 1, 2),
        (-1, 0, 0, 0),
        (-1, 0, 0, 2),
        (-1, 0, 1, 2),
    ]


def test_backend_relation_valid_rows_and_params_are_recorded(worker: Start, prefix: str) -> None:
    got, found, _, _ = recorded(
        worker,
        prefix,
        """
brick.checksum("k", y, backend="CUDA", relation="replicated:tp", valid=2, params={"a": 1, "b": [None, 2.5, "x"]})
brick.checksum("k", y, relation="moved:pp0-1", params={"b": [None, 2.5, "x"], "a": 1})
brick.checksum("k", y, relation="partial:tp", params={"b": [None, 2.5, "y"], "a": 1})
brick.checksum("k", y, relation="local")
brick.checksum("k", y, params={1: {}, 2: 2**70, 3: True})
reported = fingerprint_fields(brick.fingerprint(y, valid=2, key=key()))
""",
    )
    first, second, third, fourth, fifth = found
    assert [(each["relation"], got.name(each["of"]) if each["of"] else None) for each in found] == [
        (1, "tp"), (3, "pp0-1"), (2, "tp"), (0, None), (0, None),
    ]  # fmt: skip
    assert (got.name(first["backend"]), second["backend"]) == ("CUDA", 0)
    assert (first["valid"], second["valid"]) == (2, 2**64 - 1)
    assert first["params"] == second["params"] != 0
    assert len({each["params"] for each in found}) == 4
    assert (fourth["params"], fifth["params"] != 0, third["params"] != 0) == (0, True, True)
    assert first["tensors"][0]["elements"] == 8
    assert lost(got) == 0


def unmixed(mixed: int) -> int:
    """Return the input of splitmix64 that gives this output."""
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9)):
        mixed = (mixed ^ mixed >> shift ^ mixed >> 2 * shift) * pow(factor, -1, 2**64) % 2**64
    return ((mixed ^ mixed >> 30 ^ mixed >> 60) - 0x9E3779B97F4A7C15) % 2**64


def test_the_weights_generation_is_recorded_once_a_second_one_exists(worker: Start, prefix: str) -> None:
    _, found, _, _ = recorded(
        worker,
        prefix,
        """
weights = {"w": b"1"}
def both():
    brick.checksum("k", y)
    brick.checksum("k", y, params={"a": 1})
both()
brick.weights(weights)  # counted: the first
both()
for generation in ("v0", "v1", "v0", 0, None):
    brick.weights(weights, generation=generation)
    both()
brick.checksum("k", y, relation="moved:pp0-1", params={"a": 1})
brick.checksum("k", y, relation="replicated:tp", params={"a": 1})
""",
    )
    params = [each["params"] for each in found if not each["flags"] & _reader.CHECKED_WEIGHT]
    plain, more, moved, replicated = params[:-2:2], params[1:-2:2], *params[-2:]
    assert (plain[:2], len(set(more[:2]))) == ([0, 0], 1)
    v0, v1, again, zero, sixth = plain[2:]
    assert v0 == again
    assert len({0, v0, v1, zero, sixth, *more}) == 5 + 5
    assert [unmixed(each) for each in more[2:]] == [more[0] ^ unmixed(each) for each in plain[2:]]
    assert (moved, replicated) == (more[0], more[-1])


def test_a_forked_child_has_the_weights_generation_of_its_parent(worker: Start, prefix: str) -> None:
    process = worker(
        """
brick.weights({"w": b"1"}, generation="v1")
brick.checksum("k", b"1")
if os.fork() == 0:
    brick.checksum("k", b"1")
    pause()
    os._exit(0)
pause()
"""
    )
    process.paused()
    process.paused()
    reported = [each for of in readings(prefix) for each in events(of)]
    params = [each["params"] for each in reported if not each["flags"] & _reader.CHECKED_WEIGHT]
    assert len(params) == 2
    assert params[0] == params[1] != 0
    process.go()
    process.go()
    assert process.end() == 0


def test_the_name_other_is_recorded_like_any_other_name(worker: Start, prefix: str) -> None:
    got, found, known, _ = recorded(
        worker,
        prefix,
        """
with brick.brick("other"): brick.checksum("other", y, backend="other", relation="replicated:other")
""",
    )
    (only,) = found
    assert known == [("other", -1, False)]
    assert (only["relation"], *(got.name(only[key]) for key in ("of", "backend"))) == (1, "other", "other")
    assert counts(got)["other"] == 1


@pytest.mark.ci
def test_all_moves_over_a_link_share_one_name(worker: Start, prefix: str) -> None:
    got, found, _, _ = recorded(
        worker,
        prefix,
        """
brick.checksum("kv_recv", y, relation="moved:prefill-decode", position="block 7")
for n in range(10_000):
    brick.checksum("kv_send", y, relation="moved:prefill-decode", position=f"block {n}")
""",
    )
    assert [entry[0] for entry in got.names if entry] == ["other", "kv_recv", "prefill-decode", "kv_send"]
    assert {(each["relation"], got.name(each["of"]), each["flags"]) for each in found} == {(3, "prefill-decode", 1)}
    received, *sent = [each["position"] for each in found]
    assert len(set(sent)) == len(sent) == (4096 - 512) // 4 - 1
    assert sent.index(received) == 7


def test_an_invalid_layer_is_counted_and_left_out(worker: Start, prefix: str) -> None:
    got, found, known, _ = recorded(
        worker,
        prefix,
        """
with brick.layer(3):
    for layer in (-1, 2**24 - 1, 1.5, "4"):
        brick.checksum("k", y, layer=layer, input=brick.take("k", x, layer=layer))
""",
    )
    assert places(known, found) == [("k", -1, 0, position) for position in range(4)]
    ((_, lane, _),) = got.lanes
    assert lane["amounts"] == 4


def test_valid_rows_apply_to_inputs_with_as_many_rows(worker: Start, prefix: str) -> None:
    _, found, _, _ = recorded(
        worker, prefix, "brick.checksum('k', y, input=(x, np.ones((5, 4), 'f'), np.float64(3)), valid=2)"
    )
    assert [tensor["elements"] for tensor in found[0]["tensors"]] == [8, 8, 20, 1]


def test_params_with_lying_items_are_accepted(worker: Start, prefix: str) -> None:
    _, found, _, _ = recorded(
        worker,
        prefix,
        """
class Told(dict):
    def __init__(self, reported): super().__init__(a=1); self.reported = reported
    def items(self): return self.reported
for reported in ([("b", 2)], [1, 2], [(object(), Told([(object(), {})]))], None):
    brick.checksum("k", y, params=Told(reported))
brick.checksum("k", y, params={"a": 1})
""",
    )
    assert len({each["params"] for each in found}) == 1
    assert len(found) == 5


def test_inputs_are_taken_before_the_call_overwrites_them(worker: Start, prefix: str) -> None:
    _, found, _, reported = recorded(
        worker,
        prefix,
        """
before = fingerprint_fields(brick.fingerprint(x, key=0))
taken = brick.take("in_place", x), brick.take("in_place", y, valid=1)
x *= 3
brick.checksum("in_place", x, input=taken)
tensors = (x, None), (x / 3, None), (y, 1)
reported = [fingerprint_fields(brick.fingerprint(t, key=key(), valid=v))[0] for t, v in tensors]
""",
    )
    assert [f"{tensor['checksum']:016x}" for tensor in found[0]["tensors"]] == reported


def test_more_than_eight_inputs_are_all_included(worker: Start, prefix: str) -> None:
    _, found, _, _ = recorded(
        worker,
        prefix,
        """
many = [x + n for n in range(12)]
brick.checksum("k", y, input=many[:8])
brick.checksum("k", y, input=many)
many[11][2, 3] += 1
brick.checksum("k", y, input=many)
brick.checksum("k", y, input=[*many, object()])
brick.checksum("k", y, input=many[7])
""",
    )
    *found, eighth = found
    few, many, changed, unknown = found
    assert [each["flags"] & 4 for each in found] == [0, 4, 4, 4]
    assert {each["inputs"] for each in found} == {8}
    assert few["tensors"][8]["checksum"] == eighth["tensors"][1]["checksum"], "the eighth input is recorded alone"
    sums = [[tensor["checksum"] for tensor in each["tensors"]] for each in found]
    assert sums[0][:8] == sums[1][:8] == sums[2][:8]
    assert len({each[8] for each in sums}) == 4
    assert many["tensors"][8]["elements"] == 5 * 12
    assert (unknown["tensors"][8]["dtype"], unknown["tensors"][8]["checksum"]) == (0, 0)
    assert (few["tensors"][8]["dtype"], changed["tensors"][8]["dtype"]) == (12, 12)


# ---- rounding modes ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the register is that of x86-64")
@pytest.mark.parametrize("modes", [0x0000, 0x5F80, 0xFFC0], ids=["traps", "up", "flush"])
def test_floating_point_modes_change_no_checksum_and_are_preserved(worker: Start, prefix: str, modes: int) -> None:
    """The test enables floating-point traps, so an unguarded rounding would end the process."""
    _, found, _, reported = recorded(
        worker,
        prefix,
        f"""
import ctypes
libm = ctypes.CDLL("libm.so.6")
registers = (ctypes.c_uint32 * 8)()
libm.fegetenv(registers)
usual = registers[7]
tensors = np.array([1e300, 0.1]), np.array([-0.1, 1e-300]), np.array([1e-40], "f")
for n in range(2):
    for tensor in tensors:
        registers[7] = {modes} if n else usual
        libm.fesetenv(registers)
        brick.checksum("k", tensor, input=tensor)
        libm.fegetenv(registers)
        reported = registers[7]
        registers[7] = usual
        libm.fesetenv(registers)
""",
    )
    assert reported == modes
    seen = [[tensor[name] for tensor in each["tensors"] for name in ("min", "max", "mean", "l2")] for each in found]
    assert seen[:3] == seen[3:]
    assert seen[2][0] > 0


# ---- users ----------------------------------------------------------------------------------------------


def test_inspect_shows_checksums(worker: Start, prefix: str) -> None:
    process = worker(
        NUMBERS
        + """
brick.checksum("rope_neox", y, input=x, layer=3, step=17, position=5)
brick.checksum("token_ids", y)
with brick.step(0):
    brick.checksum("rope_neox", y, position=7)
report(fingerprint_fields(brick.fingerprint(y, key=key()))[0])
pause()
"""
    )
    checksum = process.next_report()
    process.paused()
    shown = brickd("inspect").stdout
    row, first = [line for line in shown.splitlines() if checksum in line]
    assert first.split()[-6:-4] == ["0", "7"]
    assert row.split()[:3] == ["1", "rope_neox", "3"]
    assert row.split()[-6:] == ["17", "5", "float32", "3x4", checksum, "1"]
    assert "off without BRICKD_SENSITIVE=1: token_ids" in shown
    process.go()
    assert process.end() == 0
