"""Weights of torch that are not plain tensors in the host's memory: packed, composed of tensors, or on a device.

Owns: how such weights are found, how each is read through torch's documented API, and whether a packed weight has
changed. Must not know: when a weight is read, and what its content is used for. Invariants: no module and no weight is
kept alive; a weight that cannot be read is still listed, so that it is counted; torch is never imported.

Unpacking a weight takes 5 to 90 ms per million elements and cannot be interrupted. So a dynamic linear layer is
unpacked only at its first reading. Later readings check whether the layer's product with a fixed input has changed,
which takes 0.1 ms per million elements, as long as a step of the model.
"""

from __future__ import annotations

import ctypes
import sys
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    # Returns a tensor. Returns None if the tensor no longer exists, NotImplemented if it has not changed since it was
    # last read.
    Read = Callable[[], Any]

_DEPTH_MAX = 4
_UNPACKED_MAX = 1 << 20  # elements; unpacking a larger weight would delay a step of the host for too long


def further(module: Any) -> tuple[list[tuple[str, Read, bool]], list[str]]:
    """Return further weights of a module, and the names of the tensors that these weights replace.

    Each weight is given as its name, a function that reads it, and whether reading takes too long to be done within a
    step of the host.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        return [], []
    found: list[tuple[str, Read, bool]] = []
    replaced: list[str] = []
    inside: list[str] = []  # paths of packed modules; these also read the packed weights inside them
    for path, part in module.named_modules():
        for table in ("_parameters", "_buffers"):
            for key, tensor in vars(part)[table].items():
                try:
                    inner = list(_flattened(tensor))
                except Exception:  # a tensor of any class may raise, and the other tensors must still be found
                    replaced.append(_below(path, key))
                    found.append((_below(path, key), _Unreadable(part), False))
                    continue
                if inner:
                    replaced.append(_below(path, key))
                found += [(_below(path, key, *names), _Inner(part, table, key, names), False) for names in inner]
        if _is_packed(part):
            inside.append(_below(path, ""))
            packed, takes_long = _Packed(part), not _is_multiplied(part) and _elements(part) > _UNPACKED_MAX
            found += [(_below(path, name), _PackedTensor(packed, name), takes_long) for name in _PACKED]
        elif not any(path.startswith(of) for of in inside):
            packed_ones = [name for name, value in vars(part).items() if isinstance(value, torch.ScriptObject)]
            found += [(_below(path, name), _Unreadable(part), False) for name in packed_ones]
    return found, replaced


def host_copy(tensor: Any) -> Any:
    """Wait for a CUDA device, and copy a tensor from it.

    Raises:
        RuntimeError: the tensor is on another device, or a copy would end the capture of a CUDA graph.
    """
    torch = sys.modules["torch"]
    if not tensor.is_cuda:
        raise RuntimeError(f"brick_agent: a tensor on device {tensor.device}, expected this host's memory or CUDA")
    relax = _capture_mode() if torch.cuda.is_initialized() else None
    if relax is not None and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("brick_agent: not copied, because a copy would end this thread's capture of a CUDA graph")
    before = ctypes.c_int(_RELAXED)
    if relax is not None and relax(ctypes.byref(before)) != 0:
        raise RuntimeError("brick_agent: the CUDA driver did not change the capture mode")
    try:
        with torch.utils._python_dispatch._disable_current_modes():  # dispatch modes must not see the copy
            return tensor.detach().cpu()
    finally:
        if relax is not None:
            relax(ctypes.byref(before))


_RELAXED = 2  # in this mode, a thread's calls do not end the capture of another thread


def _capture_mode() -> Callable[[Any], int]:
    """Return the CUDA driver's function that exchanges this thread's capture mode.

    Raises:
        RuntimeError: the driver has no such function, as with ROCm.
    """
    try:
        return ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        raise RuntimeError("brick_agent: the driver has no capture mode, expected CUDA 10.1 or later") from None


def _below(path: str, *names: str) -> str:
    return ".".join((path, *names) if path else names)


def _flattened(tensor: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Return the attribute names that lead from a tensor to each plain tensor inside it."""
    if len(above) == _DEPTH_MAX or not hasattr(type(tensor), "__tensor_flatten__"):
        return
    for name in tensor.__tensor_flatten__()[0]:
        deeper = list(_flattened(getattr(tensor, name), (*above, name)))
        yield from deeper or [(*above, name)]


def _is_packed(part: Any) -> bool:
    """Whether a module keeps its weight and bias packed, and has methods that unpack them."""
    of_class = type(part)
    return "quantized" in of_class.__module__ and all(callable(getattr(of_class, name, None)) for name in _METHODS)


def _elements(part: Any) -> float:
    """Return the number of elements of a packed weight without unpacking it; infinite if unknown."""
    for names in _SIZES:
        if all(isinstance(getattr(part, name, None), int) for name in names):
            size = 1
            for name in names:
                size *= getattr(part, name)
            for extent in getattr(part, "kernel_size", ()):
                size *= extent
            return size
    return float("inf")


# The attributes whose product is the number of elements: of linear layers, of convolutions (multiplied by the kernel
# size; an upper bound if they have groups), and of embeddings.
_SIZES = ("in_features", "out_features"), ("in_channels", "out_channels"), ("num_embeddings", "embedding_dim")
_METHODS = "weight", "bias"
_PACKED = "weight", "weight_scale", "bias"


class _Unreadable:
    """A tensor that torch cannot read; it exists as long as its module."""

    def __init__(self, part: Any) -> None:
        self._part = weakref.ref(part)

    def __call__(self) -> Any:
        if self._part() is not None:
            raise TypeError("brick_agent: the weight is packed, and torch has no function that unpacks it")


class _Inner:
    """A tensor inside a parameter or buffer."""

    def __init__(self, part: Any, table: str, key: str, names: tuple[str, ...]) -> None:
        self._part, self._table, self._key, self._names = weakref.ref(part), table, key, names

    def __call__(self) -> Any:
        part = self._part()
        tensor = None if part is None else vars(part)[self._table].get(self._key)
        for name in self._names if tensor is not None else ():
            tensor = getattr(tensor, name)
        return tensor


class _Packed:
    """A quantized module.

    Its tensors are read in this order: the integers, the scales, the zero points and the bias.
    """

    def __init__(self, part: Any) -> None:
        self.part = weakref.ref(part)
        self._scale: Any = None  # the scale of the last unpacked weight
        self._product: Any = None  # the product with the fixed input at that time
        self._is_same = False

    def weight(self) -> Any:
        part, self._is_same = self.part(), False
        if part is None:
            return None
        product = _product(part)
        self._is_same = product is not None and self._product is not None and _is_equal(product, self._product)
        if self._is_same:
            return NotImplemented
        self._product = self._scale = None
        weight = part.weight()
        self._product = product
        if not weight.is_quantized:
            return weight
        self._scale = _scale(weight)
        return weight.int_repr()

    def weight_scale(self) -> Any:
        if self._is_same:
            return NotImplemented
        scale, self._scale = self._scale, None
        return scale

    def bias(self) -> Any:
        part = self.part()
        return None if part is None else NotImplemented if self._is_same else part.bias()


class _PackedTensor:
    """One of the tensors of a quantized module. Two objects for the same tensor of the same module are equal."""

    def __init__(self, of: _Packed, name: str) -> None:
        self._of, self._name = of, name

    def __call__(self) -> Any:
        return getattr(self._of, self._name)()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _PackedTensor) and (self._of.part, self._name) == (other._of.part, other._name)

    __hash__ = None  # type: ignore[assignment]


def _is_multiplied(part: Any) -> bool:
    """Whether the module's product with an input depends on its weight, its scales and its bias."""
    dynamic = sys.modules.get("torch.ao.nn.quantized.dynamic")
    return dynamic is not None and isinstance(part, dynamic.Linear)


def _product(part: Any) -> Any:
    """Return the module's product with two rows of distinct numbers.

    Return None if a changed weight might give the same product.
    """
    if not _is_multiplied(part):
        return None
    torch = sys.modules["torch"]
    at = torch.arange(1, 2 * part.in_features + 1, dtype=torch.float64, device="cpu")
    signs = torch.where((at * 2**0.5) % 1 < 0.5, -1.0, 1.0)
    # Multiples of the golden ratio are spread evenly. None of these numbers is small, so the smallest change of a
    # weight changes the product.
    rows = (signs * (0.25 + 0.75 * ((at * _GOLDEN) % 1))).to(torch.float32).reshape(2, part.in_features)
    # This call runs no hooks and no ReLU.
    return sys.modules["torch.ao.nn.quantized.dynamic"].Linear.forward(part, rows)


def _is_equal(one: Any, other: Any) -> bool:
    torch = sys.modules["torch"]
    return bool(torch.equal(one.view(torch.int32), other.view(torch.int32)))  # compares NaN as well


_GOLDEN = (5**0.5 - 1) / 2


def _scale(weight: Any) -> Any:
    torch = sys.modules["torch"]
    if weight.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scales, zeros = [weight.q_scale()], [weight.q_zero_point()]
    else:
        scales, zeros = weight.q_per_channel_scales().tolist(), weight.q_per_channel_zero_points().tolist()
    return torch.tensor([scales, [float(zero) for zero in zeros]], dtype=torch.float64)
