"""Scans follow a torch model that changes after its weights were registered."""

from __future__ import annotations

import textwrap

import pytest
from faults import Start
from watched_weights import Left, left_by

pytest.importorskip("torch", reason="torch is not installed: .venv/bin/pip install torch==2.13.0")

MODEL = """
import gc, torch, warnings
from torch import nn
warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(7)
class Model(nn.Sequential):
    walked = 0
    def named_parameters(self, *args, **keywords):
        self.walked += 1
        return super().named_parameters(*args, **keywords)
model = Model(*(nn.Linear(4, 4, bias=False) for _ in range(40)))
brick.weights(model, rescan_s=1e-6, share=1)
def scanned():
    before = scans()
    steps(lambda: scans() >= before + 2)  # one may be on its way
reported = []
def after(change):
    change()
    scanned()
    here = model[3] if len(model) > 3 else model[-1]
    reported.append([watched(), model.walked, checksum(here.weight.detach())])
"""


def left(worker: Start, prefix: str, source: str) -> Left:
    return left_by(worker, prefix, MODEL + textwrap.dedent(source), BRICKD_EVENTS="8192")


def test_a_replaced_part_is_read_even_if_the_old_one_lives_on(worker: Start, prefix: str) -> None:
    _, records, results, _ = left(
        worker,
        prefix,
        """
        kept = model[3]
        after(lambda: None)
        after(lambda: model.__setitem__(3, nn.Linear(4, 4, bias=False)))
        after(lambda: model.__setitem__(3, kept))
        after(lambda: model.__setitem__(39, nn.Linear(4, 4)))
        after(lambda: model.__delitem__(39))
        """,
    )
    assert [each[:2] for each in results] == [[40, 1], [40, 2], [40, 3], [41, 4], [39, 5]]
    seen = [each.checksum for each in records if (each.name, each.layer) == ("*.weight", 3)]
    assert [each for n, each in enumerate(seen) if n == 0 or each != seen[n - 1]] == [
        results[0][2], results[1][2], results[2][2],
    ]  # fmt: skip
    assert {each.generation for each in records} == {1}, "a scan does not count as a load"
    assert ("*.bias", 39) in {(each.name, each.layer) for each in records}


def test_added_assigned_resized_and_converted_tensors_are_read_as_they_are(worker: Start, prefix: str) -> None:
    got, records, results, _ = left(
        worker,
        prefix,
        """
        after(lambda: model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}, assign=True))
        after(lambda: setattr(model[3], "weight", nn.Parameter(torch.ones(5, 4))))
        after(lambda: model[3].weight.data.resize_(2, 4))
        after(lambda: model[3].to(torch.bfloat16))
        after(lambda: model[3].register_parameter("bias", nn.Parameter(torch.ones(4))))
        after(lambda: model[3].register_buffer("scale", torch.ones(4)))
        after(lambda: setattr(model[3], "bias", None))
        """,
    )
    assert [each[0] for each in results] == [40, 40, 40, 40, 41, 42, 41]
    seen = [each.checksum for each in records if (each.name, each.layer) == ("*.weight", 3)]
    assert list(dict.fromkeys(seen))[1:] == list(dict.fromkeys(each[2] for each in results))
    assert {"*.bias", "*.scale"} <= {each.name for each in records}
    assert got.process["tensors_refused"] == 0


def test_the_packed_weights_of_a_quantized_part_are_read(worker: Start, prefix: str) -> None:
    _, records, results, _ = left(
        worker,
        prefix,
        """
        from torch.testing._internal.two_tensor import TwoTensor
        def quantize(n):
            model[n] = torch.ao.quantization.quantize_dynamic(nn.Sequential(model[n]), {nn.Linear})[0]
        unpacked = []
        quantize(0)
        scanned()
        real = type(model[0]).weight
        type(model[0]).weight = lambda self: (unpacked.append(self), real(self))[1]
        quantize(1)
        scanned()
        model[2].weight = nn.Parameter(TwoTensor(torch.ones(4, 4), torch.ones(4, 4)))
        scanned()
        reported = [watched(), unpacked == [model[1]], checksum(model[0].weight().int_repr()),
                    checksum(model[1].weight().int_repr())]
        """,
    )
    last = {(each.name, each.layer): each.checksum for each in records}
    assert results[:2] == [43, True], "the part has a weight and its scale, but no bias"
    assert [last["*.weight", n] for n in (0, 1)] == results[2:]
    assert {("*.weight.a", 2), ("*.weight.b", 2)} <= last.keys()


def test_a_tensor_that_raises_is_counted_and_a_freed_model_leaves_nothing(worker: Start, prefix: str) -> None:
    got, records, results, _ = left(
        worker,
        prefix,
        """
        import weakref
        class Odd(torch.Tensor):
            def __tensor_flatten__(self): raise RuntimeError("odd")
            def __dlpack__(self, **_): raise RuntimeError("odd")
        model[0].register_buffer("odd", torch.zeros(2).as_subclass(Odd))
        scanned()
        reported = [watched()]
        alive = weakref.ref(model)
        del model
        gc.collect()
        reported.append(alive() is None)
        steps(lambda: watched() == 0)
        reported.append(watched())
        """,
    )
    assert results == [41, True, 0]
    assert got.process["tensors_refused"] > 0
    assert {each.layer for each in records} == set(range(40))
