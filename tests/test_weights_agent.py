"""Weights: which site a tensor of a model has; that all are recorded, when there is room; how long a slice may take."""

from __future__ import annotations

import ctypes
import os
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import forge
import pytest
from conftest import SHM, WRITER, reading, readings
from faults import ALERT, Compile, Start, order, program
from faults import native as running
from hypothesis import given
from hypothesis import strategies as st
from recorded import events
from rings import Rings
from test_lost import taken_away

from brickd.reading import Reading
from brickd.segment import open_segment

WEIGHT, POSITION, STEP = 8, 1, 2
NO_LAYER = 2**32 - 1

Place = tuple[str, int | None, int | None]


# ---- names -------------------------------------------------------------------------------------------------------


class Weight(ctypes.Structure):
    """The first fields of struct brick_weight, and room for the others."""

    _fields_ = [
        ("name", ctypes.c_uint32),
        ("layer", ctypes.c_uint32),
        ("position", ctypes.c_uint64),
        ("has_position", ctypes.c_uint32),
        ("others", ctypes.c_uint8 * 1000),
    ]


class Weights(ctypes.Structure):
    """struct brick_weights as far as its budget is asked, and room for the rest."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("each", "count", "hold", "release", "host", "generation")),
        *((name, ctypes.c_uint64) for name in ("rescan_ns", "share_ppm", "segment", "read", "told", "gone")),
        *(
            (name, ctypes.c_uint64)
            for name in ("step", "asked", "loads", "began_ns", "seen_ns", "next_ns", "next_ticks")
        ),
        ("credit", ctypes.c_int64),
        ("others", ctypes.c_uint8 * 5000),
    ]


@pytest.fixture(scope="module")
def native(compiled: Compile) -> Any:
    library = ctypes.CDLL(str(compiled("writer.so", WRITER, "-shared", "-fPIC")))
    library.brick_weight_site.restype = ctypes.c_size_t
    library.brick_weights_allowed.restype = ctypes.c_uint64
    return library


def place(native: Any, name: str) -> Place:
    """What is left of a name, the layer, the position."""
    text = name.encode()
    left, weight = ctypes.create_string_buffer(len(text) + 1), Weight()
    length = native.brick_weight_site(text, ctypes.c_size_t(len(text)), left, ctypes.byref(weight))
    return (
        left.raw[:length].decode(),
        None if weight.layer == NO_LAYER else weight.layer,
        weight.position if weight.has_position else None,
    )


@pytest.mark.parametrize(
    ("name", "left", "layer", "position"),
    [
        ("model.layers.3.mlp.experts.5.down.weight", "model.layers.*.mlp.experts.*.down.weight", 3, 5),
        ("model.layers.0.self_attn.q_proj.bias", "model.layers.*.self_attn.q_proj.bias", 0, None),
        ("transformer.h.11.attn.c_attn.weight", "transformer.h.*.attn.c_attn.weight", 11, None),
        ("encoder.block.3.layer.0.SelfAttention.q.weight", "encoder.block.*.layer.0.SelfAttention.q.weight", 3, None),
        ("towers.1.layers.3.norm.weight", "towers.1.layers.*.norm.weight", 3, None),
        ("single_transformer_blocks.7.norm.weight", "single_transformer_blocks.*.norm.weight", 7, None),
        ("visual.merger.2.weight", "visual.merger.*.weight", 2, None),
        ("features.0.weight", "features.*.weight", 0, None),
        ("0.weight", "*.weight", 0, None),
        ("experts.5.layers.2.experts.7", "experts.*.layers.*.experts.7", 2, 5),
        ("experts.5.w", "experts.*.w", None, 5),
        ("local_expert.5.3", "local_expert.*.*", 3, 5),
        ("embed_tokens.weight", "embed_tokens.weight", None, None),
        ("layers.03.w", "layers.03.w", None, None),
        ("layers.16777214.w", "layers.*.w", 16777214, None),
        ("layers.16777215.w", "layers.16777215.w", None, None),
        ("layers.99999999999999999999.w", "layers.99999999999999999999.w", None, None),
        ("layers.-1.+2.1e3. 4.5 .\u0663", "layers.-1.+2.1e3. 4.5 .\u0663", None, None),
        ("", "", None, None),
        ("..layers..3.", "..layers..*.", 3, None),
        ("7", "*", 7, None),
        ("_orig_mod.model.layers.3.up.weight", "model.layers.*.up.weight", 3, None),
        ("layers._orig_mod.3._orig_mod._orig_mod.experts._orig_mod.5.w", "layers.*.experts.*.w", 3, 5),
        ("_orig_mod", "_orig_mod", None, None),
        ("_orig_mod.", "", None, None),
        (".a._orig_mod._orig_mod", ".a._orig_mod", None, None),
        ("my_orig_mod.w._orig_mods.x", "my_orig_mod.w._orig_mods.x", None, None),
    ],
)
def test_the_numbers_of_layers_and_experts_are_taken_out_of_a_name(
    native: Any, name: str, left: str, layer: int | None, position: int | None
) -> None:
    assert place(native, name) == (left, layer, position)


parts = st.sampled_from(["layers", "h", "blocks", "experts", "expert", "mlp", "w", "0", "1", "12", "007", "x3", ""])


@given(
    st.lists(parts, min_size=1, max_size=9).map(".".join) | st.text(max_size=60).filter(lambda text: "*" not in text)
)
def test_no_other_name_has_the_same_place(native: Any, name: str) -> None:
    """What was taken out can be put back: there is one name for a place."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    left, layer, position = place(native, name)
    stars = [n for n, part in enumerate(left.split(".")) if part == "*"]
    assert len(stars) == (layer is not None) + (position is not None)
    given_parts, left_parts = name.split("."), left.split(".")
    assert [given_parts[n] for n in range(len(given_parts)) if n not in stars] == [
        left_parts[n] for n in range(len(left_parts)) if n not in stars
    ]
    behind = {n: left_parts[n - 1].endswith(("expert", "experts")) and n > 0 for n in stars}
    experts = [n for n in stars if behind[n]]
    if position is not None:
        assert given_parts[experts[0]] == str(position)
        stars.remove(experts[0])
    assert [given_parts[n] for n in stars] == ([str(layer)] if layer is not None else [])


# ---- what is recorded --------------------------------------------------------------------------------------------

# Offsets of the process line's counters, of a segment with the usual number of lanes.
_PAGE = forge.empty(lanes=32)
SCANS, WATCHED = (forge.place(_PAGE, "process") + forge.later("process", name) for name in ("scans", "weights"))
PROGRAM = f"""
from array import array
import numpy as np
def counter(at): return int.from_bytes(os.pread(_core._segment_fd(), 8, at), "little")
def scans(): return counter({SCANS})
def watched(): return counter({WATCHED})
def steps(until):
    while not until():
        with brick.step(None): pass
def key():
    with open(os.environ["BRICKD_STATE_DIR"] + "/key") as file:
        return int(file.read(32), 16)
def checksum(tensor): return brick.fingerprint(tensor, key=key()).checksum
def model(layers, elements=8):
    return {{f"layers.{{n}}.w": array("f", [n] * elements) for n in range(layers)}}
"""


class Record(NamedTuple):
    """What the record of a weight says; its generation was counted or given; the record's own number."""

    name: str
    layer: int
    position: int | None
    generation: int
    counted: bool
    checksum: str
    number: int


def found(of: Reading) -> list[Record]:
    """All records of weights that are in the rings."""
    with open_segment(of.file) as segment:
        sites = segment.sites()
    result = []
    for each in events(of):
        site = sites[each["site"]]
        assert site is not None
        if not each["flags"] & WEIGHT:
            continue
        assert (each["relation"], each["inputs"], each["of"], each["params"], site[2]) == (0, 0, 0, 0, 0)
        position = each["position"] if each["flags"] & POSITION else None
        checksum = f"{each['tensors'][0]['checksum']:016x}"
        counted = not each["flags"] & STEP
        result.append(Record(of.name(site[0]), site[1], position, each["step"], counted, checksum, each["sequence"]))
    return result


def emptied(of: Reading) -> None:
    """Give all slots of the event rings back to their threads, as a consumer that has read them."""
    fd = os.open(SHM / of.file, os.O_RDWR)
    try:
        page = os.pread(fd, 4096, 0)
        for number, lane, _ in of.lanes:
            Rings(fd, page).tail(number, "event", lane["event_head"])
    finally:
        os.close(fd)


class Left(NamedTuple):
    """What a program left when it had done its work, and what it reported and said."""

    reading: Reading
    records: list[Record]
    told: Any
    said: str


def left_by(worker: Start, prefix: str, source: str, **environment: str) -> Left:
    process = worker(PROGRAM + "told = None\n" + textwrap.dedent(source) + "\nreport(told)\npause()\n", **environment)
    told = process.heard()
    process.paused()
    got = reading(prefix)
    records = found(got)
    process.go()
    assert process.end() == 0, process.said
    return Left(got, records, told, process.said)


def test_all_of_a_model_are_recorded_where_their_names_say(worker: Start, prefix: str) -> None:
    got, records, told, said = left_by(
        worker,
        prefix,
        """
        big = np.arange(1 << 20, dtype="f")
        tensors = {
            "layers.0.w": array("f", [1, 2]), "layers.1.w": array("f", [3, 4]),
            "layers.1.experts.7.up": np.eye(5)[::2, ::-1], "embed_tokens.weight": big,
            "lm_head.weight": np.float32(3), "empty": np.zeros((0, 3)), "bytes": b"abc",
        }
        brick.weights(tensors)
        told = [checksum(each) for each in tensors.values()]
        """,
    )
    assert [(*each[:3], each.generation) for each in records] == [
        ("layers.*.w", 0, None, 1),
        ("layers.*.w", 1, None, 1),
        ("layers.*.experts.*.up", 1, 7, 1),
        ("embed_tokens.weight", -1, None, 1),
        ("lm_head.weight", -1, None, 1),
        ("empty", -1, None, 1),
        ("bytes", -1, None, 1),
    ]
    assert [each.checksum for each in records] == told
    assert all(each.counted for each in records)
    assert (got.process["weights"], got.process["scans"], got.process["tensors_refused"]) == (7, 1, 0)
    assert said == ""


def test_weights_wait_for_a_key_that_cannot_be_had_for_now(worker: Start, prefix: str) -> None:
    got, records, told, _ = left_by(
        worker,
        prefix,
        """
        import resource
        brick.init()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        tensors = model(3)
        brick.weights(tensors)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        steps(lambda: scans() == 1)
        told = [checksum(each) for each in tensors.values()]
        """,
    )
    assert [each.checksum for each in records] == told
    assert (got.process["weights"], got.process["tensors_refused"]) == (3, 0)


def test_a_weight_that_is_a_bfloat16_of_ml_dtypes_is_read(worker: Start, prefix: str) -> None:
    got, records, told, _ = left_by(
        worker,
        prefix,
        """
        import ml_dtypes
        half = np.arange(12).astype(ml_dtypes.bfloat16)
        brick.weights({"half": half})
        told = checksum(half)
        """,
    )
    assert [each.checksum for each in records] == [told]
    assert got.process["tensors_refused"] == 0


def test_what_is_called_other_is_recorded_as_any_other(worker: Start, prefix: str) -> None:
    """So is a name that found no room, which is no site."""
    got, records, told, _ = left_by(
        worker,
        prefix,
        """
        brick.weights({"other": array("f", [1, 2]), "layers.3.other": b"abc"})
        told = [checksum(each) for each in (array("f", [1, 2]), b"abc")]
        """,
    )
    assert [(*each[:3], each.checksum) for each in records] == [
        ("other", -1, None, told[0]),
        ("layers.*.other", 3, None, told[1]),
    ]
    assert got.process["sites_refused"] == 0


def test_a_kernel_that_is_off_and_a_weight_of_its_name_are_two_sites(worker: Start, prefix: str) -> None:
    got, records, _, _ = left_by(
        worker,
        prefix,
        """
        brick.checksum("token_embedding", b"what a customer wrote")
        brick.weights({"token_embedding": b"a weight"})
        brick.checksum("token_embedding", b"what a customer wrote")
        """,
    )
    assert [each.name for each in records] == ["token_embedding"]
    assert got.process["sites"] == 2


def test_a_generation_is_given_or_counted(worker: Start, prefix: str) -> None:
    got, records, _, _ = left_by(
        worker,
        prefix,
        """
        brick.weights({"w": b"1"})
        brick.weights({"w": b"2"}, generation=70)
        brick.weights({"w": b"3"}, generation=0)
        brick.weights({"w": b"4"})
        """,
    )
    assert [each.generation for each in records] == [1, 70, 0, 4]
    assert [each.counted for each in records] == [True, False, False, True]
    assert (got.process["weights"], got.process["scans"]) == (1, 4)


# ---- modules -----------------------------------------------------------------------------------------------------

# What of torch's modules is asked for; a parameter wants gradients, and exports nothing but what it is detached to.
MODULE = """
class Parameter:
    requires_grad = True
    def __init__(self, numbers): self.numbers = np.asarray(numbers, "f")
    def detach(self): return self.numbers
    def __dlpack__(self, **_): raise BufferError("requires grad")
    __dlpack_device__ = __dlpack__
class Elsewhere(Parameter):
    def detach(self): return self
    def __dlpack_device__(self): return (2, 0)
class Module:
    def __init__(self, parameters, buffers=()): self.parameters, self.buffers = dict(parameters), dict(buffers)
    def named_parameters(self): return iter(self.parameters.items())
    def named_buffers(self): yield from self.buffers.items()
"""


def test_a_module_gives_its_parameters_and_its_buffers(worker: Start, prefix: str) -> None:
    _, records, told, said = left_by(
        worker,
        prefix,
        MODULE
        + """
model = Module({"layers.0.w": Parameter([1]), "layers.1.w": Parameter([2])}, {"inv_freq": np.arange(3.0)})
brick.weights(model)
told = [checksum(each) for each in (np.float32([1]), np.float32([2]), np.arange(3.0))]
""",
    )
    assert [each[:2] for each in records] == [("layers.*.w", 0), ("layers.*.w", 1), ("inv_freq", -1)]
    assert [each.checksum for each in records] == told
    assert said == ""


def test_a_module_is_not_kept_and_what_is_gone_is_watched_no_more(worker: Start, prefix: str) -> None:
    got, _, told, _ = left_by(
        worker,
        prefix,
        MODULE
        + """
import weakref
kept = Parameter([2])
model = Module({"a": Parameter([1]), "b": kept})
brick.weights(model, rescan_s=1e-6, share=1)
alive = weakref.ref(model), weakref.ref(model.parameters["a"])
told = [watched()]
del model
told += [each() is None for each in alive]
steps(lambda: scans() >= 3)
told += [watched()]
""",
    )
    assert told == [2, True, True, 1]
    assert got.process["tensors_refused"] == 0


# A module that says where it keeps what: torch's own do.
PARTS = (
    MODULE
    + """
import weakref
class Part(Module):
    def __init__(self, parts=(), **tensors):
        self.parts, self._parameters, self._buffers = dict(parts), tensors, {}
    def named_modules(self): return [("", self), *self.parts.items()]
    def named_parameters(self):
        for prefix, part in self.named_modules():
            for name, one in part._parameters.items():
                yield f"{prefix}.{name}".lstrip("."), one
    def named_buffers(self): return ()
"""
)


def test_what_a_module_puts_in_a_tensors_place_is_watched_there(worker: Start, prefix: str) -> None:
    """As loading and converting a model do; and what swaps tensors refuses those that have weak references."""
    got, records, told, said = left_by(
        worker,
        prefix,
        PARTS
        + """
down = Part(weight=Parameter([1]), bias=Parameter([2]), gone=Parameter([3]))
model = Part({"layers.0.down": down}, scale=Parameter([4]), nothing=None)
brick.weights(model, rescan_s=1e-6, share=1)
kept = [down._parameters["weight"], model._parameters["scale"]]
told = [watched(), [weakref.getweakrefcount(each) for each in kept]]
down._parameters["weight"] = Parameter([5])
del down._parameters["gone"]
before = scans()
steps(lambda: scans() >= before + 2)
told += [watched()]
alive = weakref.ref(model), weakref.ref(down)
del model, down
told += [[each() for each in alive], checksum(np.float32([1])), checksum(np.float32([5]))]
""",
    )
    assert told[:4] == [4, [0, 0], 3, [None, None]]
    weight = [each.checksum for each in records if each.name == "layers.*.down.weight"]
    assert (weight[0], {*weight}) == (told[4], {told[4], told[5]})
    assert (got.process["tensors_refused"], said) == (0, "")


def test_a_tensor_that_is_not_where_a_module_says_is_watched_itself(worker: Start, prefix: str) -> None:
    _, records, told, said = left_by(
        worker,
        prefix,
        PARTS
        + """
class Renamed(Part):
    def named_parameters(self): return [("up", self._parameters["weight"]), ("a.b", two), ("weight", b"3")]
class Mute(Renamed):
    def named_modules(self): raise RuntimeError("none")
class Wrong(Renamed):
    _parameters = 3
    def __init__(self, tensor): self.tensor = tensor
    def named_modules(self): return [("", self), ("a", None)]
    def named_parameters(self): return [("up", self.tensor), ("a.b", two), ("weight", b"3")]
w, two = Parameter([1]), np.float32([2])
models = [Renamed(weight=w), Mute(weight=w), Wrong(w)]
for one in models:
    brick.weights(one)
told = [checksum(each) for each in (np.float32([1]), two, b"3")] * 3
""",
    )
    assert [each.checksum for each in records] == told
    assert said == ""


def test_what_cannot_be_read_is_counted_and_the_first_of_it_named_once(worker: Start, prefix: str) -> None:
    got, records, _, said = left_by(
        worker,
        prefix,
        MODULE
        + """
class Raising(Parameter):
    def detach(self): raise RuntimeError("meta")
class Broken(Module):
    def named_buffers(self):
        yield from super().named_buffers()
        raise RuntimeError("no more")
a, b, c, d = Elsewhere([1]), Parameter([2]), Raising([3]), np.ones(2)
brick.weights(Broken({"a\\n\\x1b[31m": a, "b": b, "c": c}, {"d": d}))
brick.weights({"x": a, "y": None, "z": np.array(["text"])})
""",
    )
    assert [each.name for each in records] == ["b", "d"]
    assert (got.process["weights"], got.process["tensors_refused"]) == (3, 6)
    told_once = "brickd: 3 of 5 weights have no fingerprint; the first, 'a\\n\\x1b[31m': "
    assert said.startswith(told_once + '"brick_agent: a tensor on device 2 of DLPack (CUDA), wanted one in this host')
    assert said.count("\n") == 1


# ---- room --------------------------------------------------------------------------------------------------------

HEAD = forge.place(_PAGE, "lane") + forge.field("lane", "event_head")[0]


def test_what_finds_no_room_waits_for_it_and_nothing_is_lost(worker: Start, prefix: str) -> None:
    process = worker(
        PROGRAM
        + f"""
def head(): return counter({HEAD})
brick.weights(model(2000), share=1)
while scans() == 0:
    pause()
    before = head()
    steps(lambda: head() - before >= 600 * 4 or scans())
report("done")
pause()
"""
    )
    seen: dict[int, Record] = {}
    while process.heard() == "paused":
        seen |= {each.number: each for each in found(reading(prefix))}
        emptied(reading(prefix))
        process.go()
    process.paused()
    got = reading(prefix)
    seen |= {each.number: each for each in found(got)}
    assert [seen[number].layer for number in sorted(seen)] == list(range(2000))
    assert sorted(seen) == list(range(1, 2001))
    ((_, lane, _),) = got.lanes
    assert (lane["event_attempts"], lane["event_records"], sum(lane["event_dropped"])) == (2000, 2000, 0)
    assert got.process["scans"] == 1
    process.go()
    assert process.end() == 0


def test_those_that_cannot_wait_find_room_beside_them(worker: Start, prefix: str) -> None:
    process = worker(
        PROGRAM
        + """
brick.weights(model(2000), share=1)
steps(iter([False] * 2000 + [True]).__next__)
for n in range(256): brick.checksum("kernel", b"x", step=n)
pause()
"""
    )
    process.paused()
    got = reading(prefix)
    ((_, lane, _),) = got.lanes
    assert sum(lane["event_dropped"]) == 0
    assert lane["event_records"] == 256 + 640
    process.go()
    assert process.end() == 0


def test_more_tensors_than_there_can_be_sites_are_refused_and_counted(worker: Start, prefix: str) -> None:
    got, records, _, _ = left_by(
        worker,
        prefix,
        """
        for n in range(2048): brick.checksum("kernel", b"", layer=n)  # all that there are
        brick.weights(model(16_500, 1))
        """,
    )
    assert records == []
    assert (got.process["sites_refused"], got.process["weights"], got.process["scans"]) == (16_500, 16_500, 1)
    ((_, lane, _),) = got.lanes
    assert lane["event_attempts"] == lane["event_records"] + sum(lane["event_dropped"]) == 2048 + 16_500


# ---- time --------------------------------------------------------------------------------------------------------

LEAST_NS, SLICE_NS = 50_000, 200_000
gaps = st.one_of(st.integers(0, 10**4), st.integers(0, 10**8), st.integers(0, 10**12))


@given(st.sampled_from([1, 5_000, 123_456, 1_000_000]), st.lists(st.tuples(gaps, st.integers(0, 30)), max_size=200))
def test_all_slices_together_take_their_share_of_the_time(
    native: Any, share: int, turns: list[tuple[int, int]]
) -> None:
    """Whatever each of them took: what was too much is a debt."""
    weights = Weights(share_ppm=share)
    now = taken = over = 0
    for gap, tenths in turns:
        now += gap
        allowed = native.brick_weights_allowed(ctypes.byref(weights), ctypes.c_uint64(now))
        assert allowed == 0 or LEAST_NS <= allowed <= SLICE_NS
        if allowed:
            assert taken * 1_000_000 <= now * share
            took = allowed * tenths // 10
            native.brick_weights_took(ctypes.byref(weights), ctypes.c_uint64(took))
            now, taken, over = now + took, taken + took, max(0, took - allowed)
    assert (taken - over) * 1_000_000 <= now * share


@pytest.mark.parametrize("gap", [1, 99, 100_000])
def test_no_time_is_lost_however_short_the_steps_are(native: Any, gap: int) -> None:
    weights = Weights(share_ppm=500_000)
    turns = 0
    while not native.brick_weights_allowed(ctypes.byref(weights), ctypes.c_uint64(turns * gap)):
        turns += 1
    assert turns * gap == pytest.approx(2 * LEAST_NS, abs=gap)


def test_a_long_pause_is_no_credit_for_a_long_slice_and_time_that_runs_backwards_none(native: Any) -> None:
    weights = Weights(share_ppm=0)
    for now, allowed in ((2**63, SLICE_NS), (5, SLICE_NS), (2**63, SLICE_NS)):
        assert native.brick_weights_allowed(ctypes.byref(weights), ctypes.c_uint64(now)) == allowed
    native.brick_weights_took(ctypes.byref(weights), ctypes.c_uint64(2**64 - 1))
    assert native.brick_weights_allowed(ctypes.byref(weights), ctypes.c_uint64(2**63 + 10**9)) == 0
    an_hour = 3600 * 10**9
    assert native.brick_weights_allowed(ctypes.byref(weights), ctypes.c_uint64(2**63 + 201 * an_hour)) == SLICE_NS


def test_a_large_tensor_is_read_in_several_slices_and_looked_up_in_each(worker: Start, prefix: str) -> None:
    _, records, told, _ = left_by(
        worker,
        prefix,
        """
        class Counting(dict):
            asked = 0
            def __getitem__(self, name):
                self.asked += 1
                return super().__getitem__(name)
        tensors = Counting(large=np.arange(1 << 22, dtype="f"))
        brick.weights(tensors, rescan_s=1e-9, share=1)
        told = [tensors.asked]
        steps(lambda: scans() >= 2)
        told.append(tensors.asked)
        """,
    )
    assert told[0] == 1
    assert told[1] > 3
    assert len({each.checksum for each in records}) == 1


# ---- again -------------------------------------------------------------------------------------------------------

ASKED = forge.place(_PAGE, "control") + forge.later("control", "weights")


def ask(of: Reading, number: int) -> None:
    """As a daemon that wants all weights to be read anew."""
    fd = os.open(SHM / of.file, os.O_RDWR)
    try:
        os.pwrite(fd, number.to_bytes(8, "little"), ASKED)
    finally:
        os.close(fd)


def test_a_scan_begins_when_it_is_asked_for_and_not_before(worker: Start, prefix: str) -> None:
    process = worker(
        PROGRAM
        + """
brick.weights(model(3), share=1)
some = [False] * 20_000 + [True]
steps(iter(some).__next__)
report(scans()); pause()
for n in (2, 3, 4):
    steps(lambda: scans() >= n)
    steps(iter(some).__next__)
    report(scans()); pause()
"""
    )
    for scan, number in ((1, 7), (2, 2**64 - 1), (3, 0), (4, 0)):
        assert process.heard() == scan
        process.paused()
        got = reading(prefix)
        assert [each.layer for each in found(got)] == [0, 1, 2] * scan
        assert {each.generation for each in found(got)} == {1}
        ask(got, number)
        process.go()
    assert process.end() == 0


def test_a_scan_finds_what_has_changed_shrunk_gone_and_come_back(worker: Start, prefix: str) -> None:
    got, records, told, _ = left_by(
        worker,
        prefix,
        """
        tensors = {"a": array("f", [1, 2, 3]), "b": bytearray(8), "c": np.arange(5)}
        def after(change):
            change()
            at = scans() + 2  # one may be on its way
            steps(lambda: scans() >= at)
            told.append([watched(), checksum(tensors["a"]), checksum(tensors["c"])])
        told = []
        brick.weights(tensors, rescan_s=1e-9, share=1)
        after(lambda: tensors["a"].pop())
        after(lambda: tensors.pop("b"))
        after(lambda: tensors.__setitem__("c", np.arange(6)))
        after(lambda: tensors.update(b=bytearray(9)))
        after(lambda: tensors["b"].append(1))
        """,
    )
    assert [each[0] for each in told] == [3, 2, 2, 3, 3]
    last = {each.name: each.checksum for each in records}
    assert [last["a"], last["c"]] == told[-1][1:]
    assert len({each.checksum for each in records if each.name == "a"}) == 2
    assert len({each.checksum for each in records if each.name == "b"}) == 3
    assert got.process["tensors_refused"] == 0


def test_nothing_is_watched_any_more_after_an_empty_mapping(worker: Start, prefix: str) -> None:
    _, records, told, _ = left_by(
        worker,
        prefix,
        """
        import weakref
        class Model(dict): pass
        first = Model(model(2))
        alive = weakref.ref(first)
        brick.weights(first, rescan_s=1e-9)
        del first
        brick.weights({})
        told = [alive() is None, watched(), scans()]
        steps(iter([False] * 20_000 + [True]).__next__)
        told.append(scans())
        """,
    )
    assert told == [True, 0, 1, 1]
    assert len(records) == 2


# ---- off, forked, several threads --------------------------------------------------------------------------------

UNSEEN = """
import weakref
class Watched(dict):
    def keys(self): raise SystemExit("looked at")
"""


def test_while_recording_is_off_nothing_is_looked_at_or_kept(worker: Start, prefix: str) -> None:
    _, records, told, _ = left_by(
        worker,
        prefix,
        UNSEEN
        + """
brick.init()
brick.disable()
one = Watched()
brick.weights(one)
alive = weakref.ref(one)
del one
told = alive() is None
brick.enable()
with brick.step(None): pass
""",
    )
    assert (told, records) == (True, [])


def test_a_worker_that_is_off_from_the_start_makes_no_key(worker: Start, prefix: str) -> None:
    process = worker(PROGRAM + UNSEEN + "brick.weights(Watched())\nwith brick.step(1): pass\npause()", BRICKD="0")
    process.paused()
    assert readings(prefix) == []
    assert not os.path.exists(os.environ["BRICKD_STATE_DIR"] + "/key")
    process.go()
    assert process.end() == 0


def test_a_consumer_that_has_switched_off_is_obeyed_by_scans_too(worker: Start, prefix: str) -> None:
    process = worker(
        PROGRAM
        + """
brick.init()
pause()
brick.weights(model(3), share=1)
steps(iter([False] * 20_000 + [True]).__next__)
report([scans(), watched()])
pause()
steps(lambda: scans() == 1)
pause()
"""
    )
    process.paused()
    got = reading(prefix)
    with open_segment(got.file, os.O_RDWR) as segment:
        segment.command(1)
        process.go()
        assert process.heard() == [0, 0]
        process.paused()
        assert found(reading(prefix)) == []
        segment.command(0)
    process.go()
    process.paused()
    assert [each.layer for each in found(reading(prefix))] == [0, 1, 2]
    process.go()
    assert process.end() == 0


def test_a_forked_child_records_them_into_its_own_segment(worker: Start, prefix: str) -> None:
    process = worker(
        PROGRAM
        + """
brick.weights({f"embedding.{n}": array("f", [n]) for n in range(4)}, share=1)
if os.fork() == 0:
    with brick.step(None): pass
    steps(lambda: scans() == 1)
    pause()
    os._exit(0)
pause()
"""
    )
    process.paused()
    process.paused()
    parent, child = readings(prefix)
    assert parent.uuid != child.uuid
    assert found(parent) == found(child) != []
    assert child.process["weights"] == 4
    process.go()
    process.go()
    assert process.end() == 0


def test_a_child_that_was_forked_during_a_load_of_another_thread_goes_on_with_it(worker: Start, prefix: str) -> None:
    process = worker(
        PROGRAM
        + """
import ctypes, signal, sys, threading
sys.setswitchinterval(1_000)  # the interpreter's lock is given up by whoever waits, and by nobody else
asked, looked_up = threading.Lock(), []
asked.acquire()
class Model(dict):
    def __getitem__(self, name):
        looked_up.append(name)
        if name == "large": asked.release()
        return super().__getitem__(name)
tensors = Model(large=np.zeros(1 << 21, "f"), small=np.ones(8, "f"))
while looked_up[-1:] != ["large"]:  # else it was done with all of them before this thread came to run
    loader = threading.Thread(target=brick.weights, args=(tensors,), kwargs={"share": 1})
    loader.start()
    asked.acquire()
    if looked_up[-1] != "large": loader.join()
libc, text = ctypes.PyDLL(None), ctypes.create_string_buffer(200)  # its calls keep that lock
stat = libc.open(f"/proc/self/task/{loader.native_id}/stat".encode(), 0)
def waits(): return libc.pread(stat, text, 199, ctypes.c_long(0)) and text.value.rpartition(b")")[2].split()[0] == b"S"
while not waits(): pass  # it has read what is large, and wants the lock back
child = os.fork()
if child == 0:
    signal.alarm(5)
    with brick.step(None): pass
    steps(lambda: scans() == 1)
    os._exit(0)
report(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
loader.join()
"""
    )
    assert process.heard() == 0
    assert process.end() == 0


def test_threads_that_end_steps_at_once_record_each_tensor_once_in_a_scan(worker: Start, prefix: str) -> None:
    got, records, _, _ = left_by(
        worker,
        prefix,
        """
        import threading
        brick.weights(model(7), rescan_s=1e-9, share=1)
        begin = threading.Barrier(3)
        def work():
            begin.wait()
            steps(lambda: scans() >= 20)
            begin.wait()  # none has another's lane
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads: t.start()
        for t in threads: t.join()
        """,
    )
    counted = [sum(each.layer == layer for each in records) for layer in range(7)]
    assert min(counted) >= 20
    assert max(counted) - min(counted) <= 1
    assert max(counted) - got.process["scans"] <= 1


# ---- what is given -----------------------------------------------------------------------------------------------

HOSTILE = """
class Raises(dict):
    def __init__(self, error, *names): super().__init__((name, b"") for name in names); self.error = error
    def __getitem__(self, name): raise self.error
class Nothing:
    def __getattr__(self, name): raise RuntimeError(name)
    def __repr__(self): raise RuntimeError("repr")
class Module:
    def __init__(self, found): self.found = found
    def named_parameters(self): return self.found
    def named_buffers(self): return ()
class Restless(dict):
    def __getitem__(self, name):
        brick.weights({"deeper": b""})
        with brick.step(None): pass
        return b"x"
strange = [None, 3, "text", [], object(), Nothing(), Raises(RuntimeError(), "a"), Raises(MemoryError(), "b")]
strange += [Module(found) for found in (None, 3, [None], [("a",)], [(None, b"")], [("a", b"", 1)], ["ab"])]
strange += [{None: b"", 3: b"", ("x",): b"", "\\ud800": b"", "": b"", "x" * 5000: b"", "a.b" * 3000: b""}]
strange += [{"\\0\\n": b""}]
strange += [Restless(a=b"", b=b"")]
"""


def test_nothing_that_is_given_raises(worker: Start, prefix: str) -> None:
    got, _, _, said = left_by(
        worker,
        prefix,
        HOSTILE
        + """
for one in strange:
    assert brick.weights(one, rescan_s=1e-9, share=1) is None
    steps(iter([False] * 500 + [True]).__next__)
for word in ("rescan_s", "generation", "share"):
    for one in (*strange[:7], -1, 0, float("nan"), float("inf"), 2**70):
        assert brick.weights({"a": b""}, **{word: one}) is None
""",
    )
    ((_, lane, _),) = got.lanes
    assert lane["event_attempts"] == lane["event_records"] + sum(lane["event_dropped"])
    assert got.process["tensors_refused"] > 0
    assert said.count("\n") == 2, said
    assert all(line.startswith("brickd: ") for line in said.splitlines())


@pytest.mark.parametrize(
    "call",
    [
        "brick.weights([1])",
        "brick.weights({'a': object()})",
        "brick.weights({'a': b''}, rescan_s=0)",
        "brick.weights({'a': b''}, share=1.5)",
        "brick.weights({'a': b''}, generation=1.5)",
    ],
)
def test_in_strict_mode_a_mistake_raises(worker: Start, call: str) -> None:
    process = worker(f"try: {call}\nexcept (TypeError, ValueError, AttributeError): pause()", BRICKD_STRICT="1")
    process.paused()
    process.go()
    assert process.end() == 0


def test_an_interrupt_is_not_swallowed_and_the_scan_goes_on_behind_it(worker: Start, prefix: str) -> None:
    _, records, told, _ = left_by(
        worker,
        prefix,
        """
        class Interrupted(dict):
            now = True
            def __getitem__(self, name):
                if self.now and name == "b": raise KeyboardInterrupt
                return super().__getitem__(name)
        tensors = Interrupted(a=b"1", b=b"2", c=b"3")
        told = []
        try: brick.weights(tensors, share=1)
        except KeyboardInterrupt: told.append(scans())
        try: steps(lambda: False)
        except KeyboardInterrupt: told.append(scans())
        tensors.now = False
        steps(lambda: scans() == 1)
        """,
    )
    assert told == [0, 0]
    assert [each.name for each in records] == ["a", "b", "c"]


def test_an_interrupts_signal_ends_a_load_which_the_steps_go_on_with(worker: Start, prefix: str) -> None:
    _, records, told, _ = left_by(
        worker,
        prefix,
        MODULE
        + """
import functools, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
class Signalling:  # in C alone: Python does not look for signals on the way
    requires_grad, __dlpack__ = True, None
    detach = functools.partial(os.kill, os.getpid(), signal.SIGINT)
first, second = Signalling(), np.ones(1)
try: brick.weights(Module({"first": first, "second": second}), share=1)
except KeyboardInterrupt: told = scans()
first.detach = lambda: np.zeros(1)
steps(lambda: scans() == 1)
""",
    )
    assert told == 0
    assert [each.name for each in records] == ["first", "second"]


# ---- engines -----------------------------------------------------------------------------------------------------


@pytest.fixture
def engine(compiled: Compile) -> Path:
    """An engine in C, which looks after a few microseconds whether its segment is still there."""
    return program(compiled, "weights", *ALERT)


LOADED = [("layers.*.w", 0), ("experts.*.w", -1), ("large", -1)]


def test_an_engine_loads_its_weights_and_scrubs_them_in_slices(engine: Path, prefix: str) -> None:
    with running(engine) as process:
        assert order(process, "l") == [5]
        got = reading(prefix)
        assert [each[:2] for each in found(got)] == LOADED
        assert (got.process["weights"], got.process["scans"], got.process["tensors_refused"]) == (4, 1, 1)
        order(process, "r")
        assert order(process, "w")[0] > 1
        again = found(reading(prefix))
        assert [each.checksum for each in again[3:6]] == [each.checksum for each in again[:3]]
        assert order(process, "t") == [1]


def test_a_load_that_meets_a_turn_is_left_to_the_turns(engine: Path, prefix: str) -> None:
    with running(engine) as process:
        order(process, "lLw")
        got = found(reading(prefix))
        assert [each[:2] for each in got] == LOADED * 2
        assert [each.generation for each in got] == [1] * 3 + [2] * 3


def test_a_tensor_that_never_stays_where_it_was_is_refused_and_ends_no_scan(engine: Path, prefix: str) -> None:
    with running(engine) as process:
        order(process, "lrmw")
        order(process, "w")
        got = reading(prefix)
        assert [each[:2] for each in found(got)[3:5]] == LOADED[:2]
        assert got.process["tensors_refused"] >= 5


@pytest.mark.parametrize("how", ["rm", "reopen"])
def test_into_the_segment_that_takes_a_lost_ones_place_all_are_recorded_anew(
    engine: Path, prefix: str, how: str
) -> None:
    with running(engine) as process:
        order(process, "l")
        before = reading(prefix)
        taken_away(prefix, how)
        order(process, "n")
        after = reading(prefix)
        assert after.uuid != before.uuid
        assert [each[:2] for each in found(after)] == LOADED
        assert (after.process["weights"], after.process["scans"]) == (4, 1)


def test_a_child_that_was_forked_while_its_parent_was_at_a_turn_records_them_all(engine: Path, prefix: str) -> None:
    with running(engine) as process:
        assert order(process, "lrf") == [5, 0, 0]
