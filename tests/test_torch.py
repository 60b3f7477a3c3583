"""What torch's own tensors and modules meet: what is read of them, and that it changes nothing for their host.

The other tests show the same with stand-ins; here torch is asked, where somebody has installed it.
"""

from __future__ import annotations

import textwrap

import pytest
from faults import Start
from test_weights_agent import Left, left_by

pytest.importorskip("torch", reason="torch is not installed: .venv/bin/pip install torch==2.13.0")

TORCH = """
import torch, warnings
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(7)
warnings.simplefilter("ignore")
"""


def left(worker: Start, prefix: str, source: str, **environment: str) -> Left:
    return left_by(worker, prefix, TORCH + textwrap.dedent(source), **environment)


# ---- modules -----------------------------------------------------------------------------------------------------


def test_a_watched_model_is_converted_and_loaded_where_torch_swaps_its_tensors(worker: Start, prefix: str) -> None:
    """It does so for tensors of other classes (quantized, distributed), and for all where it is told to."""
    _, records, told, said = left(
        worker,
        prefix,
        """
        from torch.testing._internal.two_tensor import TwoTensor
        other = nn.Linear(3, 3)
        other.weight = nn.Parameter(TwoTensor(torch.ones(3, 3), torch.ones(3, 3)))
        brick.weights(other)
        other.to(torch.float64)
        model = nn.Sequential(nn.Linear(3, 3))
        brick.weights(model, generation=5)
        torch.__future__.set_swap_module_params_on_conversion(True)
        model.load_state_dict(nn.Sequential(nn.Linear(3, 3)).state_dict())
        model.to(torch.bfloat16)
        brick.weights(model, generation=6)
        told = [str(other.weight.dtype), [checksum(each.detach()) for each in model.parameters()]]
        """,
    )
    assert told[0] == "torch.float64"
    assert [each.checksum for each in records if each.generation == 6] == told[1]
    assert said.startswith("brickd: 1 of 2 weights have no fingerprint; the first, 'weight': ")


def test_what_a_model_was_given_in_place_of_its_weights_is_read_by_the_next_scan(worker: Start, prefix: str) -> None:
    _, records, told, said = left(
        worker,
        prefix,
        """
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        brick.weights(model, rescan_s=1e-6, share=1)
        told = [watched()]
        changed = {name: each + 1 for name, each in model.state_dict().items()}
        model.load_state_dict(changed, assign=True)
        before = scans()
        steps(lambda: scans() >= before + 2)
        told += [watched(), {name: checksum(each) for name, each in changed.items()}]
        """,
    )
    assert told[:2] == [7, 7]
    last = {each.name.replace("*", str(each.layer)): each.checksum for each in records}
    assert last == told[2]
    assert said == ""
