"""KernelTrace: the inputs and the output of one kernel, as in cbtop's divergence profiler.

    before = KernelTrace("rope", 3, position, "cuda").with_input_checksum(x)
    rope(x)
    run.add_trace(before.with_output_checksum(x).with_time_us(12.5))

Owns: a trace and its limits. Must not know: runs, comparisons, JSON documents. Invariants: no call raises (except with
BRICKD_STRICT=1), even if a host's object raises: an invalid argument is left out, and `refused` says why, without
revealing texts or the numbers of a tensor; a call reads a tensor and keeps no reference to it; a checksum covers every
byte, the length and the dtype. A trace also contains the predecessor's FNV-1a. This number is shown but never compared.
"""

from __future__ import annotations

import json
import operator

from brick_agent._compat.profiler.local_totals import LocalTotals
from brick_agent._compat.profiler.report import printable
from brick_agent._core import Brick, Fingerprint, Taken, fingerprint, take

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, SupportsFloat, SupportsIndex

INPUTS_MAX = 64
TEXT_MAX = 4096  # the largest number of characters of each text
POSITION_MIN, NUMBER_MAX = -(1 << 63), (1 << 64) - 1
TIME_MAX_NS = (1 << 63) - 1

_mistakes = LocalTotals()


class KernelTrace:
    """The inputs and the output of one call of a kernel.

    kernel: a name, or a handle. layer: None outside of the layers. position: a number or a string, for example of a
    token. backend: a name. key: the key of the fingerprints, as for `fingerprint`; only fingerprints with the same key
    can be compared.

    Every with_… changes the trace and returns it. A trace reveals as much of a tensor as a recording with `--values`:
    embeddings, logits and tokens reveal text of customers. A trace stays in this process until it is written as JSON;
    the segment records no kernels of these three kinds.

    >>> from array import array
    >>> trace = brick.KernelTrace("rope", 3, 17, "cpu").with_output_checksum(array("f", [1, 2, 3]))
    >>> trace.output_checksum, trace.fnv1a
    ('78bae40d05ce2a1b', '1de40d89811fe258')

    Attributes:
        kernel, layer, position, backend: the arguments.
        key: a text that identifies the key without revealing it.
        inputs: the fingerprints of the inputs; empty: unknown.
        output: the fingerprint of the output; None: unknown.
        shape: the shape of the output; None: unknown.
        valid: the number of valid rows; None: all.
        params: other parameters, as JSON.
        time_ns: how long the kernel took; None: unknown.
        refused: the refused arguments, with the reason of each.
    """

    __module__ = "brick_agent"  # pickles name this module, not this file

    __slots__ = (
        "_inputs_taken",
        "_key",
        "_output_taken",
        "backend",
        "inputs",
        "kernel",
        "key",
        "layer",
        "output",
        "params",
        "position",
        "refused",
        "shape",
        "time_ns",
        "valid",
    )

    def __init__(
        self,
        kernel: str | Brick,
        layer: SupportsIndex | None = None,
        position: SupportsIndex | str | None = None,
        backend: str | None = None,
        *,
        key: SupportsIndex = 0,
    ) -> None:
        self.refused: dict[str, str] = {}
        self.kernel = self._text("kernel", kernel.name if isinstance(kernel, Brick) else kernel) or "other"
        self.layer = None if layer is None else self._number("layer", layer, 0)
        self.position: int | str | None = None
        if isinstance(position, str):
            self.position = self._text("position", position)
        elif position is not None:
            self.position = self._number("position", position, POSITION_MIN)
        self.backend = None if backend is None else self._text("backend", backend)
        self._key, self.key = 0, ""
        try:
            self.key = fingerprint(b"", key=key).checksum
            self._key = operator.index(key)
        except Exception as error:  # a host's object may raise anything
            self._refuse("key", f"a key must be an integer from 0 to 2^128-1, not {_shown(key)}", error)
        self.inputs: tuple[Fingerprint, ...] = ()
        self.output: Fingerprint | None = None
        self.shape: tuple[int, ...] | None = None
        self.valid: int | None = None
        self.params: str | None = None
        self.time_ns: int | None = None
        self._inputs_taken: tuple[Taken | None, ...] = ()
        self._output_taken: Taken | None = None

    def __repr__(self) -> str:
        return (
            f"KernelTrace({self.kernel!r}, {self.layer!r}, {self.position!r}, {self.backend!r}: "
            f"input {self.input_checksum}, output {self.output_checksum})"
        )

    def with_input_checksum(self, data: Any, *, valid: SupportsIndex | None = None) -> KernelTrace:
        """Fingerprint the inputs, before the kernel runs and may overwrite them.

        data: a tensor, as for `fingerprint`; a fingerprint with the trace's key; a result of `take`, which is used only
        in the segment; or a list or a tuple of these. valid: the number of valid rows of each input that has as many
        rows as the first input.

        >>> from array import array
        >>> x, positions = array("f", [1, 2]), array("i", [7])
        >>> len(brick.KernelTrace("rope").with_input_checksum([x, positions]).inputs)
        2
        """
        is_several = isinstance(data, (list, tuple)) and not isinstance(data, Fingerprint)
        tensors = tuple(data) if is_several else (data,)
        self.inputs, self._inputs_taken = (), ()
        self.refused.pop("inputs", None)
        if len(tensors) > INPUTS_MAX:
            self._refuse("inputs", f"a kernel has at most {INPUTS_MAX} inputs, not {len(tensors)}")
            return self
        rows = _rows_of(tensors[0]) if tensors and valid is not None else None
        results = [self._fingerprint("inputs", each, valid if _rows_of(each) == rows else None) for each in tensors]
        fingerprints = tuple(each for each, _ in results if each is not None)
        # Keep all inputs or none, because an incomplete set of inputs explains nothing.
        self.inputs = fingerprints if len(fingerprints) == len(tensors) else ()
        self._inputs_taken = tuple(taken for _, taken in results)
        return self

    def with_output_checksum(self, data: Any, *, valid: SupportsIndex | None = None) -> KernelTrace:
        """Fingerprint the output.

        data: one tensor, as for with_input_checksum. valid: the number of valid rows.

        >>> from array import array
        >>> a, b = array("f", [1] * 64), array("f", [1] * 65)
        >>> one, other = brick.KernelTrace("k").with_output_checksum(a), brick.KernelTrace("k").with_output_checksum(b)
        >>> one.fnv1a == other.fnv1a, one.output_checksum == other.output_checksum
        (True, False)
        """
        self.refused.pop("output", None)
        self.output, self._output_taken = self._fingerprint("output", data, valid)
        is_tensor = self.output is not None and not isinstance(data, Fingerprint)
        self.shape = _shape_of(data) if is_tensor else None
        self.valid = operator.index(valid) if is_tensor and valid is not None else None
        return self

    def with_params(self, params: Any) -> KernelTrace:
        """Set other parameters: JSON text, or a value that `json` can write; the order of the members does not matter.

        >>> brick.KernelTrace("rope").with_params('{"scale": 2, "base": 1e4}').params
        '{"base":10000.0,"scale":2}'
        """
        self.params = None
        self.refused.pop("params", None)
        try:
            members = json.loads(params) if isinstance(params, str) else params
            if members is not None:
                text = json.dumps(members, sort_keys=True, separators=(",", ":"), allow_nan=False)
                self.params = self._text("params", text)
        except Exception as error:
            self._refuse("params", f"params must be JSON, not {_shown(params)}", error)
        return self

    def with_time_us(self, us: SupportsFloat) -> KernelTrace:
        """Set how long the kernel took, in microseconds; this records no span in the segment.

        >>> brick.KernelTrace("rope").with_time_us(12.5).time_ns
        12500
        """
        self.time_ns = None
        self.refused.pop("time", None)
        try:
            ns = round(float(us) * 1e3)
        except Exception:
            ns = -1
        if 0 <= ns <= TIME_MAX_NS:
            self.time_ns = ns
        else:
            self._refuse("time", f"a time must be a number of microseconds from 0 on, not {_shown(us)}")
        return self

    @property
    def kernel_name(self) -> str:
        """The kernel."""
        return self.kernel

    @property
    def layer_idx(self) -> int | None:
        """The layer."""
        return self.layer

    @property
    def time_us(self) -> float | None:
        """The time of the kernel in microseconds."""
        return None if self.time_ns is None else self.time_ns / 1e3

    @property
    def output_checksum(self) -> str | None:
        """The checksum of every byte of the output, its length and its dtype; None: unknown."""
        return None if self.output is None else self.output.checksum

    @property
    def input_checksum(self) -> str | None:
        """The checksums of the inputs, separated by +; None: unknown."""
        return "+".join(each.checksum for each in self.inputs) or None

    @property
    def fnv1a(self) -> str | None:
        """The predecessor's checksum of the first 64 numbers of the output."""
        return None if self.output is None else self.output.fnv1a

    def _fingerprint(
        self, what: str, tensor: Any, valid: SupportsIndex | None
    ) -> tuple[Fingerprint | None, Taken | None]:
        """Return the fingerprints for this process and for the segment, which has its own key."""
        if isinstance(tensor, Taken):
            return None, tensor
        if isinstance(tensor, Fingerprint):
            return tensor, None
        try:
            here = fingerprint(tensor, valid=valid, key=self._key)
        except Exception as error:
            self._refuse(what, f"a tensor of {printable(self.kernel)} has no checksum: {_why(error)}", error)
            return None, None
        return here, take(self.kernel, tensor, valid=valid, layer=self.layer)

    def _hand_over(self) -> tuple[Taken | None, tuple[Taken | None, ...]]:
        """Return the tensors to record; only the first call returns any, so that a trace is recorded once."""
        taken, inputs = self._output_taken, self._inputs_taken
        self._output_taken, self._inputs_taken = None, ()
        return taken, inputs

    def _text(self, what: str, value: Any) -> str | None:
        if isinstance(value, str) and len(value) <= TEXT_MAX:
            return value
        seen = len(value) if isinstance(value, str) else _shown(value)
        self._refuse(what, f"a trace's {what} must be a string of at most {TEXT_MAX} characters, not {seen}")
        return None

    def _number(self, what: str, value: Any, least: int) -> int | None:
        try:
            number = operator.index(value)
        except Exception:
            number = least - 1
        if least <= number <= NUMBER_MAX:
            return number
        self._refuse(what, f"a trace's {what} must be an integer from {least} on, not {_shown(value)}")
        return None

    def _refuse(self, what: str, wanted: str, cause: BaseException | None = None) -> None:
        self.refused[what] = wanted[:TEXT_MAX]
        _mistakes.refuse(f"{what} of traces", wanted, cause)


def _shown(value: object) -> str:
    """Return the repr of a refused number. Of any other value, return only the type: it may be a text of a customer."""
    is_short = value is None or type(value) is float or (type(value) is int and abs(value) <= NUMBER_MAX)
    return repr(value) if is_short else f"a value of type {type(value).__name__}"


def _why(error: Exception) -> str:
    """Return the message of an error that a host's object or the agent raised."""
    try:
        return printable(str(error).removeprefix("brick_agent: "))
    except Exception:
        return f"{type(error).__name__} was raised"


def _shape_of(tensor: Any) -> tuple[int, ...] | None:
    """Return the shape of a tensor; None: unknown."""
    try:
        sizes: Any = tensor.shape if hasattr(tensor, "shape") else memoryview(tensor).shape
        return tuple(int(each) for each in sizes)
    except Exception:  # a host's object may raise anything
        return None


def _rows_of(tensor: Any) -> int | None:
    """Return the number of rows of a tensor; None: it has no dimension."""
    shape = _shape_of(tensor)
    return shape[0] if shape else None
