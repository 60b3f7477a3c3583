"""Weights on a device are copied to the host at load and on request. On a machine without a GPU, an imitation replaces
the GPU.
"""

from __future__ import annotations

import textwrap

import pytest
from faults import Start
from test_weights_scans import ASKED, plan
from watched_weights import Left, left_by

pytest.importorskip("torch", reason="torch is not installed: .venv/bin/pip install torch==2.13.0")

# Each operation on this imitation of a tensor raises, except the operations with which the agent copies it.
DEVICE = """
import torch
from torch import nn
class OnDevice(torch.Tensor):
    copies = 0
    @staticmethod
    def __new__(cls, held, device="cuda"):
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=device)
        made.held = held
        return made
    __torch_function__ = torch._C._disabled_torch_function_impl
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return OnDevice(args[0].held)
        if func is torch.ops.aten._to_copy.default and kwargs["device"].type == "cpu":
            OnDevice.copies += 1
            return args[0].held.clone()
        raise NotImplementedError(str(func))
def on_device(tensor):
    return tensor.cuda() if torch.cuda.is_available() else OnDevice(tensor)
def moved(model):
    for part in model.modules():
        for name, each in part.named_parameters(recurse=False):
            setattr(part, name, nn.Parameter(on_device(each.detach()), requires_grad=False))
    return model
def scanned(count=1):
    until = scans() + count
    steps(lambda: scans() >= until)
torch.manual_seed(7)
"""


def left(worker: Start, prefix: str, source: str, **environment: str) -> Left:
    return left_by(worker, prefix, DEVICE + textwrap.dedent(source), **environment)


def test_tensors_on_a_device_and_in_memory_have_equal_fingerprints(worker: Start, prefix: str) -> None:
    got, records, reported, stderr = left(
        worker,
        prefix,
        """
        model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
        model[1].bias = model[0].bias
        in_memory = [each.detach().clone() for each in model.parameters()]
        bias = nn.Parameter(on_device(in_memory[1]), requires_grad=False)
        model = moved(model)
        model[0].bias = model[1].bias = bias
        brick.weights(model)
        reported = [watched(), *map(checksum, in_memory)]
        """,
    )
    assert (stderr, got.process["tensors_refused"]) == ("", 0)
    count, *in_memory = reported
    assert count == len(records) == len(in_memory) == 3, "a bias that two modules share counts once"
    assert {each.checksum for each in records} == set(in_memory)


def test_only_a_requested_scan_copies_device_tensors_again(worker: Start, prefix: str) -> None:
    got, records, reported, _ = left(
        worker,
        prefix,
        f"""
        model = moved(nn.Sequential(nn.Linear(2000, 1000, bias=False), nn.Linear(1000, 2, bias=False)))
        in_memory = torch.ones(5)
        model.register_buffer("plain", in_memory)
        brick.weights(model, rescan_s=1e-6, share=1)
        first = checksum(model[0].weight.detach().cpu())
        model[0].weight = nn.Parameter(on_device(torch.ones(1000, 2000)), requires_grad=False)
        in_memory += 1
        scanned(2)
        copies = [OnDevice.copies]
        os.pwrite(_core._segment_fd(), b"x", {ASKED})
        scanned(3)
        copies.append(OnDevice.copies)
        scanned()
        copies.append(OnDevice.copies)
        reported = [first, checksum(in_memory), copies, checksum(torch.ones(1000, 2000))]
        """,
    )
    first, in_memory, copies, changed = reported
    weights = [each.checksum for each in records if (each.name, each.layer) == ("*.weight", 0)]
    assert (weights[:3], weights[-1]) == ([first] * 3, changed)
    assert in_memory in {each.checksum for each in records if each.name == "plain"}
    assert copies in ([3, 5, 5], [0, 0, 0]), "the test itself makes one copy; copies from a real GPU are not counted"
    assert got.process["tensors_refused"] == 0
    assert plan(got) == (1000, 2), "two of three weights are read only at load"


def test_a_tensor_that_moves_to_a_device_is_read_when_requested(worker: Start, prefix: str) -> None:
    got, records, reported, stderr = left(
        worker,
        prefix,
        f"""
        tensors = {{"w": torch.ones(8)}}
        brick.weights(tensors, rescan_s=1e-6, share=1)
        before = watched()
        tensors["w"] = on_device(torch.full((8,), 3.0))
        scanned(2)
        os.pwrite(_core._segment_fd(), b"x", {ASKED})
        scanned(3)
        reported = [checksum(torch.ones(8)), checksum(torch.full((8,), 3.0))]
        """,
    )
    assert [*dict.fromkeys(each.checksum for each in records)] == reported
    assert (got.process["tensors_refused"], stderr) == (0, "")
    assert plan(got) == (1000, 1)


def test_torch_function_and_dispatch_modes_see_no_copy(worker: Start, prefix: str) -> None:
    _, records, reported, _ = left(
        worker,
        prefix,
        """
        from torch.overrides import TorchFunctionMode
        from torch.utils._python_dispatch import TorchDispatchMode
        seen = []
        class Functions(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))
        class Operations(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))
        model = moved(nn.Linear(6, 4))
        with Functions(), Operations():
            brick.weights(model)
        reported = seen
        """,
    )
    assert (reported, len(records)) == ([], 2)


def test_tensors_that_cannot_be_copied_are_counted_and_reported_once(worker: Start, prefix: str) -> None:
    got, records, _, stderr = left(
        worker,
        prefix,
        """
        class Lost(OnDevice):
            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                raise RuntimeError("the device is lost")
        tensors = {"a": Lost(torch.ones(2)), "b": torch.ones(2)}
        brick.weights(tensors)
        reported = watched()
        """,
    )
    assert (len(records), got.process["tensors_refused"]) == (1, 1)
    assert stderr == "brickd: 1 of 2 weights have no fingerprint; the first, 'a': 'the device is lost'\n"


@pytest.mark.parametrize(
    ("tensor", "why", "at_load_only"),
    [
        ("torch.eye(3).to_sparse()", "sparse", 0),
        ("OnDevice(torch.ones(2), 'mps')", "a tensor on device mps", 1),
    ],
)
def test_only_tensors_on_cuda_are_copied(worker: Start, prefix: str, tensor: str, why: str, at_load_only: int) -> None:
    got, records, reported, stderr = left(
        worker,
        prefix,
        f"""
        brick.weights({{"a": {tensor}, "b": torch.ones(2)}}, rescan_s=1000)
        reported = OnDevice.copies
        """,
    )
    assert ([each.name for each in records], reported, got.process["tensors_refused"]) == (["b"], 0, 1)
    assert why in stderr.lower()
    assert plan(got)[1] == at_load_only
