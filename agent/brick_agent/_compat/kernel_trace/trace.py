"""KernelTrace: what one kernel was given and came to, as cbtop's profiler of divergence has it.

    before = KernelTrace("rope", 3, position, "cuda").with_input_checksum(x)
    rope(x)
    run.add_trace(before.with_output_checksum(x).with_time_us(12.5))

Owns: a trace, and what may stand in one. Must not know: runs, comparisons, JSON documents. Invariants: no call raises
(but in BRICKD_STRICT=1): what is wrong is left out, and `refused` says what it was; a tensor is read at the call that
is given it, and never kept; a checksum is of every byte, its length and its dtype. The seed's FNV-1a is shown beside it
and decides nothing.
"""

from __future__ import annotations

import json
import operator

from brick_agent._compat.kernel_trace.arguments import (
    INPUTS_MAX,
    NUMBER_MAX,
    POSITION_MIN,
    TEXT_MAX,
    TIME_MAX_NS,
    rows_of,
    shape_of,
    shown,
    why,
)
from brick_agent._compat.profiler.local_totals import Kept
from brick_agent._compat.profiler.report import printable
from brick_agent._core import Brick, Fingerprint, Taken, fingerprint, take

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, SupportsFloat, SupportsIndex

_mistakes = Kept()


class KernelTrace:
    """What one kernel was given and came to, once.

    kernel: its name, or a handle. layer: None outside of the layers. position: a number or a string, of a token for
    one. backend: a name. key: of the fingerprints, as `fingerprint` has it; only those of one key compare.

    Every with_… changes the trace and returns it. What a trace holds of a tensor tells as much of it as a recording
    with `--values`: of embeddings, logits and tokens what customers wrote. That stays in this process until somebody
    writes it down; in the segment such kernels are off.

    >>> from array import array
    >>> trace = brick.KernelTrace("rope", 3, 17, "cpu").with_output_checksum(array("f", [1, 2, 3]))
    >>> trace.output_checksum, trace.fnv1a
    ('78bae40d05ce2a1b', '1de40d89811fe258')

    Attributes:
        kernel, layer, position, backend: where.
        key: what tells its key from others, and gives nothing of it away.
        inputs: fingerprints of what it was given; none where that is not known.
        output: the fingerprint of what it came to; None where that is not known.
        shape: of the output; None: not known.
        valid: how many of its rows count; None: all.
        params: what else decides, as JSON.
        time_ns: how long it took; None: nobody said.
        refused: what was given and could not be taken, with the reason.
    """

    __module__ = "brick_agent"  # the path in pickles, wherever this file is

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
        if position is not None:
            is_text = isinstance(position, str)
            self.position = (
                self._text("position", position) if is_text else self._number("position", position, POSITION_MIN)
            )
        self.backend = None if backend is None else self._text("backend", backend)
        self._key, self.key = 0, ""
        try:
            self.key = fingerprint(b"", key=key).checksum
            self._key = operator.index(key)
        except Exception as error:  # whatever it is that a host's object does; so below
            self._refuse("key", f"a key must be an integer from 0 to 2^128-1, not {shown(key)}", error)
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

    # ---- what it is built of -----------------------------------------------------------------------------------------

    def with_input_checksum(self, data: Any, *, valid: SupportsIndex | None = None) -> KernelTrace:
        """Say what it is given, before it runs, for it may overwrite that.

        data: what `fingerprint` takes; what it gave, under the trace's key; what `take` gave, which is for the segment
        alone; or a list or a tuple of such. valid: how many rows count, of each with as many rows as the first.

        >>> from array import array
        >>> x, positions = array("f", [1, 2]), array("i", [7])
        >>> len(brick.KernelTrace("rope").with_input_checksum([x, positions]).inputs)
        2
        """
        is_several = isinstance(data, (list, tuple)) and not isinstance(data, Fingerprint)
        several = tuple(data) if is_several else (data,)
        self.inputs, self._inputs_taken = (), ()
        self.refused.pop("inputs", None)
        if len(several) > INPUTS_MAX:
            self._refuse("inputs", f"a kernel's inputs must be {INPUTS_MAX} at the most, not {len(several)}")
            return self
        rows = rows_of(several[0]) if several and valid is not None else None
        looked = [self._look("inputs", each, valid if rows_of(each) == rows else None) for each in several]
        prints = [each for each, _ in looked if each is not None]
        self.inputs = tuple(prints) if len(prints) == len(several) else ()  # some of them explain nothing
        self._inputs_taken = tuple(taken for _, taken in looked)
        return self

    def with_output_checksum(self, data: Any, *, valid: SupportsIndex | None = None) -> KernelTrace:
        """Say what it came to.

        data: as of with_input_checksum, but one alone. valid: how many of its rows count.

        >>> from array import array
        >>> a, b = array("f", [1] * 64), array("f", [1] * 65)
        >>> one, other = brick.KernelTrace("k").with_output_checksum(a), brick.KernelTrace("k").with_output_checksum(b)
        >>> one.fnv1a == other.fnv1a, one.output_checksum == other.output_checksum
        (True, False)
        """
        self.refused.pop("output", None)
        self.output, self._output_taken = self._look("output", data, valid)
        is_tensor = self.output is not None and not isinstance(data, Fingerprint)
        self.shape = shape_of(data) if is_tensor else None
        self.valid = operator.index(valid) if is_tensor and valid is not None else None
        return self

    def with_params(self, params: Any) -> KernelTrace:
        """Say what else decides, as JSON: a text of it, or what `json` makes one of. The order of members is none.

        >>> brick.KernelTrace("rope").with_params('{"scale": 2, "base": 1e4}').params
        '{"base":10000.0,"scale":2}'
        """
        self.params = None
        self.refused.pop("params", None)
        try:
            said = json.loads(params) if isinstance(params, str) else params
            if said is not None:
                self.params = self._text(
                    "params", json.dumps(said, sort_keys=True, separators=(",", ":"), allow_nan=False)
                )
        except Exception as error:
            self._refuse("params", f"params must be JSON, not {shown(params)}", error)
        return self

    def with_time_us(self, us: SupportsFloat) -> KernelTrace:
        """Say how long it took, in microseconds. Spans of the segment it is none of.

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
            self._refuse("time", f"a time must be a number of microseconds from 0 on, not {shown(us)}")
        return self

    # ---- as cbtop calls it -------------------------------------------------------------------------------------------

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
        """How long it took."""
        return None if self.time_ns is None else self.time_ns / 1e3

    @property
    def output_checksum(self) -> str | None:
        """Of every byte of the output, its length and its dtype; None: not known."""
        return None if self.output is None else self.output.checksum

    @property
    def input_checksum(self) -> str | None:
        """The same of the input; of several one behind the other, with a + between; None: not known."""
        return "+".join(each.checksum for each in self.inputs) or None

    @property
    def fnv1a(self) -> str | None:
        """The seed's checksum of the first 64 numbers of the output."""
        return None if self.output is None else self.output.fnv1a

    # ---- what may stand in one ---------------------------------------------------------------------------------------

    def _look(self, what: str, tensor: Any, valid: SupportsIndex | None) -> tuple[Fingerprint | None, Taken | None]:
        """What it holds, for this process; and for the segment, whose key nobody here knows."""
        if isinstance(tensor, Taken):
            return None, tensor
        if isinstance(tensor, Fingerprint):
            return tensor, None
        try:
            print_ = fingerprint(tensor, valid=valid, key=self._key)
        except Exception as error:
            self._refuse(what, f"a tensor of {printable(self.kernel)} has no checksum: {why(error)}", error)
            return None, None
        return print_, take(self.kernel, tensor, valid=valid, layer=self.layer)

    def _hand_over(self) -> tuple[Taken | None, tuple[Taken | None, ...]]:
        """What is for the segment: once, for a trace is recorded once."""
        taken, inputs = self._output_taken, self._inputs_taken
        self._output_taken, self._inputs_taken = None, ()
        return taken, inputs

    def _text(self, what: str, value: Any) -> str | None:
        if isinstance(value, str) and len(value) <= TEXT_MAX:
            return value
        found = f"{len(value)}" if isinstance(value, str) else shown(value)
        self._refuse(what, f"a trace's {what} must be a string of at most {TEXT_MAX} characters, not {found}")
        return None

    def _number(self, what: str, value: Any, least: int) -> int | None:
        try:
            number = operator.index(value)
        except Exception:
            number = least - 1
        if least <= number <= NUMBER_MAX:
            return number
        self._refuse(what, f"a trace's {what} must be an integer from {least} on, not {shown(value)}")
        return None

    def _refuse(self, what: str, wanted: str, cause: BaseException | None = None) -> None:
        self.refused[what] = wanted[:TEXT_MAX]
        _mistakes.refuse(f"{what} of traces", wanted, cause)
