"""Weights that are not plain tensors (quantized, packed) have fingerprints, or are counted as unreadable."""

from __future__ import annotations

import textwrap
from collections import Counter

import pytest
from faults import Start
from running import running
from test_weights_scans import ASKED
from verbs import brickd, started
from watched_weights import Left, left_by

from brickd.base.paths import runtime

pytest.importorskip("torch", reason="torch is not installed: .venv/bin/pip install torch==2.13.0")

QUANTIZED = """
import torch, warnings
from torch import nn
warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(7)
def quantized(model, *kinds):
    return torch.ao.quantization.quantize_dynamic(model, set(kinds), dtype=torch.qint8)
"""


def left(worker: Start, prefix: str, source: str) -> Left:
    return left_by(worker, prefix, QUANTIZED + textwrap.dedent(source))


def test_a_dynamically_quantized_weight_is_its_integers_scale_and_bias(worker: Start, prefix: str) -> None:
    got, records, results, reported = left(
        worker,
        prefix,
        """
        model = quantized(nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 2, bias=False)), nn.Linear)
        brick.weights(model)
        weight = model[0].weight()
        scale = torch.tensor([[weight.q_scale()], [float(weight.q_zero_point())]], dtype=torch.float64)
        reported = [watched(), checksum(weight.int_repr()), checksum(scale), checksum(model[0].bias().detach())]
        """,
    )
    names = {(each.name, each.layer): each.checksum for each in records}
    packed = ("weight", "weight_scale", "bias")
    assert [names[f"*.{name}", 0] for name in packed] == results[1:]
    assert names.keys() == {(f"*.{name}", layer) for layer in (0, 2) for name in packed} - {("*.bias", 2)} | {
        ("*.weight", 1), ("*.bias", 1),
    }  # fmt: skip
    assert (results[0], got.process["tensors_refused"], reported) == (7, 0, "")


def test_a_changed_packed_weight_is_read_and_a_removed_one_is_gone(worker: Start, prefix: str) -> None:
    _, records, results, reported = left(
        worker,
        prefix,
        """
        model = quantized(nn.Sequential(nn.Linear(400, 300), nn.Linear(4, 2)), nn.Linear)
        brick.weights(model, rescan_s=1e-6, share=1)
        other = quantized(nn.Sequential(nn.Linear(400, 300), nn.Linear(4, 2)), nn.Linear)
        model[0].set_weight_bias(other[0].weight(), other[0].bias())
        model[1] = nn.Identity()
        before = scans()
        steps(lambda: scans() >= before + 2)
        reported = [watched(), checksum(other[0].weight().int_repr()), checksum(other[0].bias().detach())]
        """,
    )
    last = {(each.name, each.layer): each.checksum for each in records}
    assert (results[0], reported) == (3, "")
    assert [last["*.weight", 0], last["*.bias", 0]] == results[1:]


def test_a_packed_weight_without_an_accessor_is_counted(worker: Start, prefix: str) -> None:
    got, records, results, reported = left(
        worker,
        prefix,
        """
        model = quantized(nn.Sequential(nn.LSTM(4, 4), nn.Linear(4, 4)), nn.LSTM)
        brick.weights(model)
        reported = watched()
        """,
    )
    assert (results, got.process["tensors_refused"]) == (3, 1)
    assert {each.name for each in records} == {"*.weight", "*.bias"}
    assert reported == (
        "brickd: 1 of 3 weights have no fingerprint; the first, '0._all_weight_values.0.param':"
        " 'brick_agent: the weight is packed, and torch has no function that unpacks it'\n"
    )


COUNTED = """
import torch.ao.nn.quantized as of_torch
class Linear(of_torch.Linear):
    __module__ = of_torch.Linear.__module__
    unpacked = 0
    def weight(self):
        type(self).unpacked += 1
        return super().weight()
class Dynamic(torch.ao.nn.quantized.dynamic.Linear):
    __module__ = of_torch.Linear.__module__
    unpacked = 0
    def weight(self):
        type(self).unpacked += 1
        return super().weight()
def scanned(more=2):  # one may be on its way
    before = scans()
    steps(lambda: scans() >= before + more)
"""


def test_slow_packed_weights_are_read_at_load_and_on_request_only(worker: Start, prefix: str) -> None:
    got, records, results, reported = left(
        worker,
        prefix,
        COUNTED
        + """
class Small(Linear):
    __module__ = of_torch.Linear.__module__
    unpacked = 0
model = nn.Sequential(Linear(1024, 1025), Small(1024, 1024), Dynamic(1024, 1025))
brick.weights(model, rescan_s=1e-6, share=1)
reported = [watched(), Linear.unpacked]
model[2].set_weight_bias(model[2]._weight_bias()[0], torch.ones(1025))
scanned()
reported += [Small.unpacked > 1, Dynamic.unpacked, Linear.unpacked]
os.pwrite(_core._segment_fd(), b"x", ASKED)
scanned(3)
reported.append(Linear.unpacked)
scanned()
reported.append(Linear.unpacked)
""".replace("ASKED", str(ASKED)),
    )
    assert (results, got.process["tensors_refused"], reported) == ([9, 1, True, 2, 1, 2, 2], 0, "")
    counted = Counter((each.name, each.layer) for each in records)
    assert counted["*.weight", 0] == counted["*.weight", 1], "each scan records the last reading"


def test_a_dynamic_layer_is_unpacked_once_and_its_product_shows_changes(worker: Start, prefix: str) -> None:
    _, records, results, reported = left(
        worker,
        prefix,
        COUNTED
        + """
def packed(integers, scale, bias):
    return torch._make_per_tensor_quantized_tensor(integers, scale, 0), bias
integers = torch.randint(-128, 128, (128, 257), dtype=torch.int8)
layer = Dynamic(257, 128)
layer.set_weight_bias(*packed(integers, 0.01, torch.ones(128)))
layer.register_forward_hook(lambda *_: sys.exit("a hook was called"))
model = nn.Sequential(layer)
brick.weights(model, rescan_s=1e-6, share=1)
scanned()
scanned()
reported = [[layer.unpacked, checksum(integers)]]
def after(integers, scale=0.01, bias=1.0):
    layer.set_weight_bias(*packed(integers, scale, torch.full((128,), bias)))
    scanned()
    scanned()
    reported.append([layer.unpacked, checksum(integers)])
one = integers.clone()
one[70, 3] += 1 if one[70, 3] < 127 else -1
after(one)
after(one.roll(1, dims=1))
after(one.roll(1, dims=0))
after(one, 0.01000001)
after(one, bias=1.00001)
after(one)
""",
    )
    assert [each[0] for each in results] == [1, 2, 3, 4, 5, 6, 7]
    seen = [each.checksum for each in records if each.name == "*.weight"]
    assert list(dict.fromkeys(seen)) == list(dict.fromkeys(each[1] for each in results))
    assert seen[-1] == results[-1][1]
    assert len({each.checksum for each in records if each.name == "*.bias"}) == 2
    assert len({each.checksum for each in records if each.name == "*.weight_scale"}) == 2
    assert reported == ""


def test_a_tensor_that_raises_hides_no_packed_weight(worker: Start, prefix: str) -> None:
    got, records, results, _ = left(
        worker,
        prefix,
        """
        class Odd(torch.Tensor):
            def __tensor_flatten__(self): raise RuntimeError("odd")
        model = quantized(nn.Sequential(nn.Linear(4, 4, bias=False), nn.LayerNorm(4)), nn.Linear)
        model[1].register_buffer("odd", torch.zeros(2).as_subclass(Odd))
        brick.weights(model)
        reported = watched()
        """,
    )
    assert (results, got.process["tensors_refused"]) == (5, 1)
    assert {("*.weight", 0), ("*.weight_scale", 0)} <= {(each.name, each.layer) for each in records}


def test_each_inner_tensor_of_a_wrapper_tensor_is_read(worker: Start, prefix: str) -> None:
    _, records, results, reported = left(
        worker,
        prefix,
        """
        from torch.testing._internal.two_tensor import TwoTensor
        def two(n): return TwoTensor(torch.full((3, 3), float(n)), torch.full((3, 3), n + 1.0))
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        model[0].weight = nn.Parameter(two(1))
        model[1].weight = nn.Parameter(TwoTensor(two(3), two(5)))
        brick.weights(model, rescan_s=1e-6, share=1)
        model[0].weight = nn.Parameter(two(7))
        before = scans()
        steps(lambda: scans() >= before + 2)
        reported = [watched(), [checksum(torch.full((3, 3), float(n))) for n in range(9)]]
        """,
    )
    last = {(each.name, each.layer): each.checksum for each in records if "bias" not in each.name}
    at = {("*.weight.a", 0): 7, ("*.weight.b", 0): 8, ("*.weight.a.a", 1): 3, ("*.weight.a.b", 1): 4,
          ("*.weight.b.a", 1): 5, ("*.weight.b.b", 1): 6}  # fmt: skip
    assert last == {place: results[1][n] for place, n in at.items()}
    assert (results[0], reported) == (8, "")


def test_a_quantized_tensor_of_torchao_is_read(worker: Start, prefix: str) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed: .venv/bin/pip install --no-deps torchao")
    _, records, results, _ = left(
        worker,
        prefix,
        """
        from torchao.quantization import Int8WeightOnlyConfig, quantize_
        model = nn.Sequential(nn.Linear(32, 32))
        quantize_(model, Int8WeightOnlyConfig())
        brick.weights(model)
        names = model[0].weight.__tensor_flatten__()[0]
        reported = [watched(), len(names)]
        """,
    )
    assert results[0] == results[1] + 1 == len(records)


FLEET = """
model = quantized(nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.LSTM(4, 4)), nn.Linear, nn.LSTM)
if WRONG:
    other = nn.Linear(16, 16)
    other.weight.data.copy_(model[0].weight().dequantize())
    other.weight.data[3, 3] += 1
    model[0].set_weight_bias(quantized(nn.Sequential(other), nn.Linear)[0].weight(), model[0].bias())
brick.weights(model)
pause()
"""


@pytest.mark.usefixtures("prefix")
def test_an_unreadable_quantized_weight_is_named_and_shown_in_the_status(worker: Start) -> None:
    key = str(runtime().directory / "key")
    with running() as daemon:
        for number in range(3):
            started(worker, f"WRONG = {number == 1}\n{QUANTIZED}{FLEET}", BRICKD_SERVICE="api",
                    BRICKD_WORKER=str(number), BRICKD_KEY_FILE=key)  # fmt: skip
        # With only two workers, brickd reports that they disagree.
        weights = daemon.once("/weights", lambda of: any(each["state"] == "differs" for each in of["workers"]))
        assert {each["tensor"] for each in weights["differing"]} <= {"*.weight", "*.weight_scale"}
        screen = brickd("status").stdout
        assert "weights: api/1 differs in " in screen
        assert "of 5 tensors differ; 1 cannot be read" in screen
