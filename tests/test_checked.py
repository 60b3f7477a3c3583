"""Checksums: what a kernel's tensors came to is in the ring, whole, and nothing of what is not to be looked at is."""

from __future__ import annotations

import os
import platform
import stat
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import SHM, reading, readings
from faults import Start, counts
from recorded import events
from verbs import brickd, document

from brickd import _reader
from brickd.ledger import ledger_of
from brickd.losses import losses
from brickd.reading import Reading
from brickd.segment import open_segment

NUMBERS = """
import numpy as np
x = np.arange(12, dtype="f").reshape(3, 4)
y = 2 * x
def said(f):
    counts = [f.nan, f.pos_inf, f.neg_inf]
    return [f.checksum, f.fnv1a, f.dtype, f.elements, *counts, f.min, f.max, f.mean, f.l2, *f.sketch]
def key():
    with open(os.environ["BRICKD_STATE_DIR"] + "/key") as file:
        return int(file.read(32), 16)
"""
Site = tuple[str, int, bool]
DTYPES = {2: "int8", 12: "float32", 13: "float64"}


class Left(NamedTuple):
    """What a program left when it had done its work, its events, its sites, and what it reported."""

    reading: Reading
    events: list[dict[str, Any]]
    sites: list[Site | None]
    told: Any


def recorded(worker: Start, prefix: str, source: str, **environment: str) -> Left:
    process = worker(NUMBERS + "told = None\n" + source + "\nreport(told)\npause()\n", **environment)
    told = process.heard()
    process.paused()
    got = reading(prefix)
    result = Left(got, events(got), sites(got), told)
    process.go()
    assert process.end() == 0, process.said
    return result


def sites(of: Reading) -> list[Site | None]:
    """The kernel, the layer and whether it is off, of each site."""
    with open_segment(of.file) as segment:
        return [None if site is None else (of.name(site[0]), site[1], bool(site[2])) for site in segment.sites()]


def places(known: list[Site | None], found: list[dict[str, Any]]) -> list[tuple[str, int, int, int]]:
    """Kernel, layer, step and position of each checksum."""
    result = []
    for each in found:
        site = known[each["site"]]
        assert site is not None
        result.append((*site[:2], each["step"], each["position"]))
    return result


def lost(of: Reading) -> int:
    return int(ledger_of(of).document()["events"]["dropped"].get("checked", 0))


def test_what_is_recorded_is_the_fingerprint_with_the_services_key(worker: Start, prefix: str) -> None:
    _, found, _, told = recorded(
        worker,
        prefix,
        """
y[1, 2] = np.nan; y[0, 0] = -np.inf
z = np.arange(-5, 5, dtype="b")
big = np.arange(1 << 19, dtype="f")
for tensor in (y, z, big, y[:, ::-2], y.T.astype("d"), np.zeros((2, 0, 3), "f")):
    brick.checksum("kernel", tensor, input=[x, z])
told = [[said(brick.fingerprint(t, key=key())), said(brick.fingerprint(x, key=key())), list(t.shape)]
        for t in (y, z, big, y[:, ::-2], y.T.astype("d"), np.zeros((2, 0, 3), "f"))]
""",
    )
    assert len(found) == len(told) == 6
    for each, (output, first, shape) in zip(found, told, strict=True):
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
    # float64 holds no other numbers than float32 here, and is another tensor all the same
    assert len({each["tensors"][0]["shape"] for each in found}) == 6


def test_a_checksum_stands_where_its_layer_and_its_step_say(worker: Start, prefix: str) -> None:
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


def test_whether_a_state_decides_is_recorded_where_the_host_says_so(worker: Start, prefix: str) -> None:
    _, found, _, _ = recorded(
        worker,
        prefix,
        """
for stateful in (None, False, True, 1, "no"):
    brick.checksum("attn", y, stateful=stateful)
""",
    )
    assert [each["flags"] for each in found] == [0, 16, 32, 32, 32]


def test_step_0_is_a_step_and_no_step_is_none(worker: Start, prefix: str) -> None:
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


def test_what_else_decides_is_said(worker: Start, prefix: str) -> None:
    got, found, _, _ = recorded(
        worker,
        prefix,
        """
brick.checksum("k", y, backend="CUDA", relation="replicated:tp", valid=2, params={"a": 1, "b": [None, 2.5, "x"]})
brick.checksum("k", y, relation="moved:pp0-1", params={"b": [None, 2.5, "x"], "a": 1})
brick.checksum("k", y, relation="partial:tp", params={"b": [None, 2.5, "y"], "a": 1})
brick.checksum("k", y, relation="local")
brick.checksum("k", y, params={1: {}, 2: 2**70, 3: True})
told = said(brick.fingerprint(y, valid=2, key=key()))
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


def test_of_which_generation_the_weights_are_is_said_once_a_second_one_is_known_of(worker: Start, prefix: str) -> None:
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
    assert (moved, replicated) == (more[0], more[-1])


def test_a_forked_child_has_the_weights_of_its_parent(worker: Start, prefix: str) -> None:
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
    said = [each for of in readings(prefix) for each in events(of)]
    params = [each["params"] for each in said if not each["flags"] & _reader.CHECKED_WEIGHT]
    assert len(params) == 2
    assert params[0] == params[1] != 0
    process.go()
    process.go()
    assert process.end() == 0


def test_a_kernel_a_backend_and_a_group_that_are_called_other_are_recorded_as_any_others(
    worker: Start, prefix: str
) -> None:
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


def test_what_moves_over_a_link_takes_one_name_however_many_blocks_there_are(worker: Start, prefix: str) -> None:
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


def test_a_layer_that_is_none_is_not_taken_and_counted(worker: Start, prefix: str) -> None:
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


def test_valid_rows_are_meant_for_inputs_with_as_many_rows(worker: Start, prefix: str) -> None:
    _, found, _, _ = recorded(
        worker, prefix, "brick.checksum('k', y, input=(x, np.ones((5, 4), 'f'), np.float64(3)), valid=2)"
    )
    assert [tensor["elements"] for tensor in found[0]["tensors"]] == [8, 8, 20, 1]


def test_params_that_say_other_items_than_they_hold_are_taken_as_they_are(worker: Start, prefix: str) -> None:
    _, found, _, _ = recorded(
        worker,
        prefix,
        """
class Told(dict):
    def __init__(self, told): super().__init__(a=1); self.told = told
    def items(self): return self.told
for told in ([("b", 2)], [1, 2], [(object(), Told([(object(), {})]))], None):
    brick.checksum("k", y, params=Told(told))
brick.checksum("k", y, params={"a": 1})
""",
    )
    assert len({each["params"] for each in found}) == 1
    assert len(found) == 5


def test_inputs_are_taken_before_the_call_overwrites_them(worker: Start, prefix: str) -> None:
    _, found, _, told = recorded(
        worker,
        prefix,
        """
before = said(brick.fingerprint(x, key=0))
taken = brick.take("in_place", x), brick.take("in_place", y, valid=1)
x *= 3
brick.checksum("in_place", x, input=taken)
told = [said(brick.fingerprint(t, key=key(), valid=v))[0] for t, v in ((x, None), (x / 3, None), (y, 1))]
""",
    )
    assert [f"{tensor['checksum']:016x}" for tensor in found[0]["tensors"]] == told


def test_more_inputs_than_eight_are_in_it_all_the_same(worker: Start, prefix: str) -> None:
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
""",
    )
    few, many, changed, unknown = found
    assert [each["flags"] & 4 for each in found] == [0, 4, 4, 4]
    assert {each["inputs"] for each in found} == {8}
    sums = [[tensor["checksum"] for tensor in each["tensors"]] for each in found]
    assert sums[0][:8] == sums[1][:8] == sums[2][:8]
    assert len({each[8] for each in sums}) == 4
    assert many["tensors"][8]["elements"] == 5 * 12
    assert (unknown["tensors"][8]["dtype"], unknown["tensors"][8]["checksum"]) == (0, 0)
    assert (few["tensors"][8]["dtype"], changed["tensors"][8]["dtype"]) == (12, 12)


# ---- what is not looked at ---------------------------------------------------------------------------------------

SENSITIVE = ("embedding", "LM_Head", "vocab_logits_gather", "sampling", "tok_token_ids")
UNSEEN = """
class Watched:
    def __dlpack__(self, **_):
        raise SystemExit("looked at")
    __dlpack_device__ = __dlpack__
"""


@pytest.mark.parametrize(
    ("said", "off"), [({}, True), ({"BRICKD_SENSITIVE": "0"}, True), ({"BRICKD_SENSITIVE": "1"}, False)]
)
def test_what_tells_what_customers_wrote_is_off_unless_asked_for(
    worker: Start, prefix: str, said: dict[str, str], off: bool
) -> None:
    names = (*SENSITIVE, "rope_neox")
    tensor = "Watched()" if off else "y"
    source = f"""
for name in {SENSITIVE}:
    brick.checksum(name, {tensor}, input={tensor})
    brick.checksum(name, y, input=brick.take(name, {tensor}), layer=2)
brick.checksum("rope_neox", y)
"""
    got, found, known, _ = recorded(worker, prefix, UNSEEN + source, **said)
    assert {(site[0], site[2]) for site in known if site} == {(n, off and n != "rope_neox") for n in names}
    assert len(found) == 1 + 10 * (not off)
    assert (lost(got), got.process["tensors_refused"]) == (0, 0)
    ((_, lane, _),) = got.lanes
    assert lane["event_attempts"] == len(found)


TURNING = ("rotary_embedding", "apply_rotary_pos_embedding", "layers.3.RotaryEmbedding.forward", "rope_embedding",
           "yarn.RoPE_Embedding", "embedding_rope")  # fmt: skip
NOT_TURNING = ("rotary_lm.embedding", "europe_embedding", "property_embeddings", "rope_token_ids", "rope.embedding",
               "rotary_embedding.embedding", "rotary_embedding/logits", "a:embedding:rope")  # fmt: skip


TELLING = ("LMHead", "lm-head", "lmhead", "logit", "embed_tokens", "wte", "unembed", "input_ids", "Sampler",
           "top.sample", "multinomial", "wpe_wte")  # fmt: skip
NOT_TELLING = ("downsample", "resampled", "swte", "emb", "mlp.up")


def test_what_tells_a_customers_words_is_off_by_any_of_its_usual_names(worker: Start, prefix: str) -> None:
    source = f"for name in {TELLING + NOT_TELLING}: brick.checksum(name, y if name in {NOT_TELLING} else Watched())"
    _, found, known, _ = recorded(worker, prefix, UNSEEN + source)
    assert [site[0] for site in known if site and site[2]] == list(TELLING)
    assert len(found) == len(NOT_TELLING)


def test_an_embedding_that_turns_by_position_gives_nothing_away(worker: Start, prefix: str) -> None:
    source = f"for name in {TURNING + NOT_TURNING}: brick.checksum(name, y if name in {TURNING} else Watched())"
    _, found, known, _ = recorded(worker, prefix, UNSEEN + source)
    assert [site[0] for site in known if site and not site[2]] == list(TURNING)
    assert [site[0] for site in known if site and site[2]] == list(NOT_TURNING)
    assert len(found) == len(TURNING)


def test_what_an_embedding_turns_is_not_told_by_what_was_cut_off(worker: Start, prefix: str) -> None:
    names = ["embedding." + "x" * 120 + ".rope", "x" * 120 + ".rope.embedding", "embedding" + "x" * 120 + "_rope"]
    _, found, known, _ = recorded(worker, prefix, UNSEEN + f"for name in {names}: brick.checksum(name, Watched())")
    assert [site[2] for site in known if site] == [True] * 3
    assert found == []


def test_a_name_that_is_cut_still_says_that_it_is_off(worker: Start, prefix: str) -> None:
    names = ["block." * 19 + "lm_head", "é" * 200 + ".Logits.gather", "a" * 109 + "token" + "b" * 20, "x" * 200]
    source = f"for name in {names}: brick.checksum(name, Watched() if 'xxx' not in name else y)"
    got, found, known, _ = recorded(worker, prefix, UNSEEN + source)
    cut = [site for site in known if site]
    assert [site[2] for site in cut] == [True, True, True, False]
    assert [site[0][-16:-8] for site in cut] == ["lm_head~", "é~logit~", "a~token~", "xxxxxxx~"]
    assert all(len(site[0].encode()) <= 120 for site in cut)
    assert (len(found), got.process["names_cut"]) == (1, 4)


def test_while_recording_is_off_nothing_is_looked_at(worker: Start, prefix: str) -> None:
    _, found, known, _ = recorded(
        worker,
        prefix,
        UNSEEN
        + """
brick.disable()
brick.checksum("k", Watched(), input=brick.take("k", Watched()))
brick.enable()
brick.checksum("k", y)
""",
    )
    assert places(known, found) == [("k", -1, 0, 0)]


def test_a_worker_that_is_off_from_the_start_makes_no_key(worker: Start, prefix: str) -> None:
    process = worker(UNSEEN + "brick.checksum('k', Watched(), input=brick.take('k', Watched()))\npause()", BRICKD="0")
    process.paused()
    assert readings(prefix) == []
    assert not (Path(os.environ["BRICKD_STATE_DIR"]) / "key").exists()
    process.go()
    assert process.end() == 0


# ---- the key -----------------------------------------------------------------------------------------------------


def test_the_key_is_made_once_for_its_user_alone_and_never_told(worker: Start, prefix: str) -> None:
    processes = [worker(NUMBERS + "pause(); brick.checksum('k', y); pause()") for _ in range(4)]
    for each in processes:
        each.paused()
    for each in processes:
        each.go()
    for each in processes:
        each.paused()
    file = Path(os.environ["BRICKD_STATE_DIR"]) / "key"
    assert os.listdir(file.parent) == ["key"]
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    text = file.read_text().strip()
    got = readings(prefix)
    assert [each.process["key"] for each in got] == [int(text[32:], 16)] * 4
    assert len({events(each)[0]["tensors"][0]["checksum"] for each in got}) == 1
    for one in got:
        image = (SHM / one.file).read_bytes()
        assert not [half for half in (text[:16], text[16:32]) if int(half, 16).to_bytes(8, "little") in image]
    for each in processes:
        each.go()
        assert (each.end(), each.said) == (0, "")


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        ("0123456789abcdef" * 3, 0o640, "may be read or changed by others"),
        ("0123456789abcdef" * 3, 0o602, "may be read or changed by others"),
        ("0123456789abcdef", 0o600, "holds no 48 hexadecimal digits"),
        ("0123456789abcdeg" * 3, 0o600, "holds no 48 hexadecimal digits"),
        ("0123456789abcdef" * 3 + "0\n", 0o600, "holds no 48 hexadecimal digits, and nothing else"),
        ("0123456789abcdef" * 3 + "\n\n", 0o600, "holds no 48 hexadecimal digits, and nothing else"),
        ("0" * 32 + "1" * 16, 0o600, "holds a key that is none"),
        ("1" * 32 + "0" * 16, 0o600, "holds a key that is none"),
        *(
            ("0123456789abcdef" * 2 + end, 0o600, "holds 32 hexadecimal digits, a key of 64 bits, and 48 are wanted")
            for end in ("", "\n")
        ),
        (None, 0o700, "is no file"),
    ],
)
def test_a_key_file_that_is_none_is_refused_and_told_once(
    worker: Start, prefix: str, tmp_path: Path, content: str | None, mode: int, why: str
) -> None:
    file = tmp_path / "secret"
    file.mkdir() if content is None else file.write_text(content)
    file.chmod(mode)
    process = worker(
        NUMBERS + "brick.checksum('k', y); brick.checksum('k', y); report(said(brick.fingerprint(y))); pause()",
        BRICKD_KEY_FILE=str(file),
    )
    without = process.heard()
    process.paused()
    got = reading(prefix)
    assert {f"{each['tensors'][0]['checksum']:016x}" for each in events(got)} == {without[0]}
    assert got.process["key"] == 0
    process.go()
    assert process.end() == 0
    assert process.said.count("\n") == 1
    assert f"{file} {why}" in process.said
    assert (": remove it, and another is made" in process.said) == ("64 bits" in why)


def test_a_key_that_cannot_be_had_for_now_is_waited_for_and_all_checksums_have_it(worker: Start, prefix: str) -> None:
    got, found, _, told = recorded(
        worker,
        prefix,
        """
import resource
brick.init()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
for _ in range(4): brick.checksum("k", y)
taken = brick.take("k", y)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
for _ in range(16): brick.checksum("k", y)
brick.checksum("k", y, input=taken)
told = said(brick.fingerprint(y, key=key()))[0]
""",
    )
    name = int((Path(os.environ["BRICKD_STATE_DIR"]) / "key").read_text()[32:], 16)
    # Looked for at the first, then at the first, second, fourth and eighth that came after that.
    assert [each["position"] for each in found] == list(range(7, 21))
    assert {f"{each['tensors'][0]['checksum']:016x}" for each in found} == {told}
    assert found[-1]["tensors"][1]["dtype"] == 0
    assert (got.process["key"], lost(got), got.process["tensors_refused"]) == (name, 7, 0)


def test_why_checksums_wait_for_their_key_is_told_once(worker: Start) -> None:
    process = worker(
        NUMBERS
        + """
import resource
brick.init()
resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for _ in range(9): brick.checksum("k", y)
pause()
"""
    )
    process.paused()
    process.go()
    assert process.end() == 0
    assert process.said.count("\n") == 1
    assert process.said.startswith("brickd: no checksums until there is the service's key: ")
    assert "Too many open files" in process.said


def test_a_given_key_file_is_used(worker: Start, prefix: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("000000000000000300000000000000050000000000000009\n")
    file.chmod(0o400)
    got, found, _, told = recorded(
        worker,
        prefix,
        "brick.checksum('k', y); told = said(brick.fingerprint(y, key=3 << 64 | 5))",
        BRICKD_KEY_FILE=str(file),
    )
    assert (f"{found[0]['tensors'][0]['checksum']:016x}", got.process["key"]) == (told[0], 9)


# ---- how the processor rounds -----------------------------------------------------------------------------------


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the register is that of x86-64")
@pytest.mark.parametrize("modes", [0x0000, 0x5F80, 0xFFC0], ids=["traps", "up", "flush"])
def test_modes_of_the_processor_change_nothing_that_is_recorded_and_stay_as_they_were(
    worker: Start, prefix: str, modes: int
) -> None:
    """Where exceptions trap, a number that is rounded unguarded ends the process."""
    _, found, _, told = recorded(
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
        told = registers[7]
        registers[7] = usual
        libm.fesetenv(registers)
""",
    )
    assert told == modes
    seen = [[tensor[name] for tensor in each["tensors"] for name in ("min", "max", "mean", "l2")] for each in found]
    assert seen[:3] == seen[3:]
    assert seen[2][0] > 0


# ---- threads, forks ----------------------------------------------------------------------------------------------


def test_each_thread_counts_its_own_and_all_share_the_sites(worker: Start, prefix: str) -> None:
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


def test_a_forked_child_has_its_parents_sites_and_key_and_counts_anew(worker: Start, prefix: str) -> None:
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


# ---- what is refused ---------------------------------------------------------------------------------------------


def test_a_full_ring_drops_whole_checksums_counts_them_and_keeps_room_for_ends(worker: Start, prefix: str) -> None:
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


def test_while_a_ring_is_full_nothing_is_looked_at_and_all_is_counted(worker: Start, prefix: str) -> None:
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


def test_positions_go_on_over_what_was_dropped(worker: Start, prefix: str) -> None:
    got, found, _, _ = recorded(
        worker, prefix, "for t in (y, object(), y, np.array(['x']), y): brick.checksum('k', t, step=4)"
    )
    assert [each["position"] for each in found] == [0, 2, 4]
    assert (lost(got), got.process["tensors_refused"]) == (0, 2)


def test_a_tensor_that_cannot_be_read_is_no_loss_of_the_ring_and_no_gap_in_it(worker: Start, prefix: str) -> None:
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
    assert problem == {"text": f"api/0: {loss}", "command": "brickd inspect api/0"}
    assert ", 6 tensors that cannot be read, " in brickd("coverage").stdout.splitlines()[0]


def test_memory_to_count_visits_in_is_asked_for_seldom(worker: Start, prefix: str) -> None:
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
    # Asked for at the first, second, fourth and eighth; what the host counts itself needs none.
    assert [(each["position"], each["flags"]) for each in found] == [(0, 1), (1, 1), *((n, 0) for n in range(7))]
    assert lost(got) == 7


def test_more_sites_than_there_is_room_for_are_refused_and_counted(worker: Start, prefix: str) -> None:
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
    ("said", "set_to", "room"), [("", "100", 128), ("brick.init(sites=192)", "100", 192), ("", "99999", 16384)]
)
def test_how_many_sites_there_are_is_set_as_other_sizes_are(
    worker: Start, prefix: str, said: str, set_to: str, room: int
) -> None:
    program = said + "\nfor n in range(200): brick.checksum('k', b'', layer=n)"
    got, _, _, _ = recorded(worker, prefix, program, BRICKD_SITES=set_to)
    assert got.header["sites"] == room
    assert (got.process["sites"], got.process["sites_refused"]) == (min(200, room), max(200 - room, 0))


@pytest.mark.parametrize(("set_to", "slots"), [("5000", 8192), ("8192", 8192), ("1", 1), ("999999999", 1 << 20)])
def test_how_many_slots_a_ring_of_events_has_is_set_and_a_power_of_two(
    worker: Start, prefix: str, set_to: str, slots: int
) -> None:
    got, *_ = recorded(worker, prefix, "brick.init()", BRICKD_EVENTS=set_to)
    assert got.header["event_slots"] == slots


def test_a_span_below_other_is_on_no_path_of_a_sites_number(worker: Start, prefix: str) -> None:
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


def test_what_an_interrupt_ends_is_counted_as_dropped(worker: Start, prefix: str) -> None:
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


def test_nothing_that_is_given_raises(worker: Start, prefix: str) -> None:
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
    found = events(got)
    assert all(each["relation"] == 0 for each in found)
    ((_, lane, _),) = got.lanes
    assert lane["event_attempts"] == lane["event_records"] + sum(lane["event_dropped"])
    assert lane["amounts"] > 0
    assert got.process["tensors_refused"] > 0
    process.go()
    assert process.end() == 0
    assert process.said.count("\n") == 1, process.said
    assert process.said.startswith("brickd: a tensor has no checksum: ")


def test_what_cannot_be_read_is_asked_why_once(worker: Start, prefix: str) -> None:
    _, _, _, told = recorded(
        worker,
        prefix,
        HOSTILE
        + """
class Asked(Exception):
    def __str__(self): asked.append(1); return "why"
asked = []
for _ in range(3): brick.checksum("k", Raises(Asked()))
told = asked
""",
    )
    assert told == [1]


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
def test_in_strict_mode_a_mistake_raises(worker: Start, call: str) -> None:
    process = worker(NUMBERS + f"try: {call}\nexcept (TypeError, ValueError): pause()", BRICKD_STRICT="1")
    process.paused()
    process.go()
    assert process.end() == 0


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


# ---- what people see ---------------------------------------------------------------------------------------------


def test_inspect_shows_them(worker: Start, prefix: str) -> None:
    process = worker(
        NUMBERS
        + """
brick.checksum("rope_neox", y, input=x, layer=3, step=17, position=5)
brick.checksum("token_ids", y)
with brick.step(0):
    brick.checksum("rope_neox", y, position=7)
report(said(brick.fingerprint(y, key=key()))[0])
pause()
"""
    )
    checksum = process.heard()
    process.paused()
    shown = brickd("inspect").stdout
    row, first = [line for line in shown.splitlines() if checksum in line]
    assert first.split()[-6:-4] == ["0000000000000000", "7"]
    assert row.split()[:3] == ["1", "rope_neox", "3"]
    assert row.split()[-6:] == ["0000000000000011", "5", "float32", "3x4", checksum, "1"]
    assert "off without BRICKD_SENSITIVE=1: token_ids" in shown
    process.go()
    assert process.end() == 0
