"""Writes and reads runs of traces as JSON.

Owns: the form of the document. Must not know: how a trace is made, comparisons. Invariants: reading a written document
gives back the same traces, including NaN and infinities; an invalid document is refused completely, with a message that
gives the place, the value seen and the value expected; reading has the same limits as recording.
"""

from __future__ import annotations

import json
import math

from brick_agent._compat.kernel_trace.trace import (
    INPUTS_MAX,
    NUMBER_MAX,
    POSITION_MIN,
    TEXT_MAX,
    TIME_MAX_NS,
    KernelTrace,
)
from brick_agent._core import Fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

SCHEMA_VERSION = 1
_DIGITS = frozenset("0123456789abcdef")
_COUNTS = ("elements", "bytes", "nan", "pos_inf", "neg_inf")
_FIGURES = ("min", "max", "mean", "l2")
# The fields in the order of a Fingerprint.
_FIELDS = ("checksum", "dtype", "elements", "bytes", *_FIGURES, "nan", "pos_inf", "neg_inf", "sketch", "fnv1a")
# The members of a trace that JSON can represent directly.
_PLAIN = ("kernel", "layer", "position", "backend", "params", "time_ns", "key", "shape", "valid")
_SKETCH = 16
_SHOWN = 40
_MISSING = object()


def as_json(head: dict[str, object], traces: Sequence[KernelTrace]) -> str:
    """Write the document of a run."""
    top = {"schema_version": SCHEMA_VERSION, "source": "process"}
    return json.dumps({**top, **head, "traces": [_trace(each) for each in traces]}, allow_nan=False)


def _trace(of: KernelTrace) -> dict[str, object]:
    return {
        **{name: getattr(of, name) for name in _PLAIN},
        "inputs": [_fingerprint(each) for each in of.inputs],
        "output": None if of.output is None else _fingerprint(of.output),
        "refused": of.refused,
    }


def _fingerprint(of: Fingerprint) -> dict[str, object]:
    members = {name: _finite(value) for name, value in zip(_FIELDS, of, strict=True)}
    return members | {"sketch": [_finite(each) for each in of.sketch]}


def _finite(value: Any) -> Any:
    """Encode NaN and infinities as text, because JSON has no numbers for them."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


# ---- read ------------------------------------------------------------------------------------------------------------


def from_json(text: str | bytes, traces_max: int) -> tuple[dict[str, Any], list[KernelTrace]]:
    """Read the traces of a document, and its other members.

    Raises:
        ValueError: the document is invalid.
    """
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"brick_agent: the run of traces is not JSON: {error}") from error
    _require(isinstance(document, dict), "the document", document, "an object")
    version = document.get("schema_version")
    _require(version == SCHEMA_VERSION and version is not True, "schema_version", version, str(SCHEMA_VERSION))
    head = {
        "run_id": _text(document, "run_id", ""),
        "diverged": _read(document, "diverged", "", _is(bool), "true or false"),
        "divergence_diagnosis": _text(document, "divergence_diagnosis", "", optional=True, most=None),
        "traces_dropped": _number(document, "traces_dropped", ""),
        "mistakes": _members(document, "mistakes", "", _number),
    }
    rows = _read(document, "traces", "", _is(list), "an array")
    _require(len(rows) <= traces_max, "traces", len(rows), f"at most {traces_max}")
    return head, [_trace_of(row, f"traces[{n}]") for n, row in enumerate(rows)]


def _trace_of(row: Any, where: str) -> KernelTrace:
    _require(isinstance(row, dict), where, row, "an object")
    at = f"{where}."
    layer = _number(row, "layer", at, optional=True)
    position = _read(row, "position", at, _is_position, "null, an integer or a string")
    trace = KernelTrace(_text(row, "kernel", at), layer, position, _text(row, "backend", at, optional=True))
    trace.params = _text(row, "params", at, optional=True)
    trace.time_ns = _number(row, "time_ns", at, optional=True, most=TIME_MAX_NS)
    trace.key = _read(row, "key", at, lambda value: value == "" or _is_checksum(value), "16 hexadecimal digits")
    shape = _read(row, "shape", at, lambda value: value is None or _is_shape(value), "null or an array of sizes")
    trace.shape = None if shape is None else tuple(shape)
    trace.valid = _number(row, "valid", at, optional=True)
    inputs = _read(row, "inputs", at, _is(list), "an array")
    _require(len(inputs) <= INPUTS_MAX, f"{at}inputs", len(inputs), f"at most {INPUTS_MAX}")
    trace.inputs = tuple(_fingerprint_of(each, f"{at}inputs[{n}]") for n, each in enumerate(inputs))
    output = _read(row, "output", at, lambda value: True, "an object")
    trace.output = None if output is None else _fingerprint_of(output, f"{at}output")
    trace.refused = _members(row, "refused", at, _text)
    return trace


def _fingerprint_of(row: Any, where: str) -> Fingerprint:
    _require(isinstance(row, dict), where, row, "an object")
    at = f"{where}."
    sketch = _read(row, "sketch", at, lambda value: isinstance(value, list) and len(value) == _SKETCH,
                   f"an array of {_SKETCH} numbers")  # fmt: skip
    members: dict[str, object] = {
        **{name: _read(row, name, at, _is_checksum, "16 hexadecimal digits") for name in ("checksum", "fnv1a")},
        "dtype": _text(row, "dtype", at),
        **{name: _number(row, name, at) for name in _COUNTS},
        **{name: _float(row.get(name), at + name) for name in _FIGURES},
        "sketch": tuple(_float(each, f"{at}sketch[{n}]") for n, each in enumerate(sketch)),
    }
    return Fingerprint([members[name] for name in _FIELDS])


def _members(row: dict[str, Any], name: str, at: str, read: Callable[[dict[str, Any], str, str], Any]) -> Any:
    """Check that a value is an object. `read` then checks each of its members."""
    members = _read(row, name, at, _is(dict), "an object")
    return {key: read(members, key, f"{at}{name}.") for key in members}


def _text(row: dict[str, Any], name: str, at: str, *, optional: bool = False, most: int | None = TEXT_MAX) -> Any:
    def is_one(value: object) -> bool:
        return (value is None and optional) or (isinstance(value, str) and (most is None or len(value) <= most))

    return _read(row, name, at, is_one, "a string" if most is None else f"a string of at most {most} characters")


def _number(row: dict[str, Any], name: str, at: str, *, optional: bool = False, most: int = NUMBER_MAX) -> Any:
    def is_one(value: Any) -> bool:
        return (value is None and optional) or (_is_integer(value) and 0 <= value <= most)

    return _read(row, name, at, is_one, "an integer of 0 or more")


def _float(value: Any, where: str) -> float:
    if isinstance(value, str):
        _require(value in ("nan", "inf", "-inf"), where, value, 'a number, "nan", "inf" or "-inf"')
        return float(value)
    _require(_is_integer(value) or isinstance(value, float), where, value, "a number")
    try:
        return float(value)
    except OverflowError:
        _refuse(where, value, "a number")


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_position(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= TEXT_MAX
    return value is None or (_is_integer(value) and POSITION_MIN <= value <= NUMBER_MAX)


def _is_checksum(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 16 and _DIGITS.issuperset(value)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(_is_integer(each) and 0 <= each <= NUMBER_MAX for each in value)


def _read(row: dict[str, Any], name: str, at: str, is_one: Callable[[Any], bool], wanted: str) -> Any:
    value = row.get(name, _MISSING)
    _require(value is not _MISSING and is_one(value), at + name, value, wanted)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _require(is_so: bool, where: str, value: object, wanted: str) -> None:
    if not is_so:
        _refuse(where, value, wanted)


def _refuse(where: str, value: object, wanted: str) -> NoReturn:
    seen = "missing" if value is _MISSING else json.dumps(value)
    seen = seen if len(seen) <= _SHOWN else seen[:_SHOWN] + "…"
    raise ValueError(f"brick_agent: {where} of a run of traces is {seen}, expected {wanted}")
