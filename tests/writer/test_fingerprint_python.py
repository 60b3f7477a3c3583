"""brick_agent.fingerprint: what it accepts, what it refuses (and with which message), and what it releases."""

from __future__ import annotations

import copy
import ctypes
import pickle
import sys
import threading
from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import brick_agent as brick
import ml_dtypes
import numpy as np
import pytest
from fingerprints import CODES, STORED, Bytes, differences, expected, stored
from hypothesis import given
from hypothesis import strategies as st

FORMATS = "?bhilqnBHILQNefd"


def agrees(got: brick.Fingerprint, of: Bytes, dtype: str | None = None, valid: int | None = None, key: int = 0) -> None:
    """Assert that a fingerprint is the fingerprint of an array."""
    name = dtype or of.dtype.name
    want = expected(of, name, valid, key)
    shown = SimpleNamespace()
    for field in ("elements", "bytes", "nan", "pos_inf", "neg_inf", "min", "max", "mean", "l2", "sketch"):
        setattr(shown, field, getattr(got, field))
    shown.checksum, shown.fnv1a = int(got.checksum, 16), int(got.fnv1a, 16)
    assert differences(shown, want) == []
    assert got.dtype == name
    assert len(got.checksum) == len(got.fnv1a) == 16


def refused(array: Any, **arguments: Any) -> tuple[type[Exception], str]:
    """Return the exception without its frames, because frames keep references to the arguments."""
    try:
        got = brick.fingerprint(array, **arguments)
    except Exception as error:
        return type(error), str(error)
    pytest.fail(f"{got}")


# ---- the buffer protocol -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", FORMATS)
def test_every_native_number_type_has_a_fingerprint(code: str) -> None:
    numbers = np.arange(100).astype({"n": "q", "N": "Q"}.get(code, code))
    agrees(brick.fingerprint(numbers), numbers)
    if code != "e":  # memoryview does not support float16
        agrees(brick.fingerprint(memoryview(numbers.tobytes()).cast("@" + code)), numbers)  # type: ignore[call-overload]
    for order in "=<":
        if code not in "nN":
            agrees(brick.fingerprint(numbers.astype(order + code)), numbers)


@given(st.integers(0, 2**32), st.integers(0, 2**128 - 1))
def test_views_valid_rows_and_keys_are_respected(seed: int, key: int) -> None:
    random = np.random.default_rng(seed)
    whole = random.standard_normal((8, 9, 10)).astype(random.choice(["e", "f", "d"]))
    view = whole[:: random.choice([-2, 1, 3]), ::-1].transpose(random.permutation(3))
    valid = int(random.integers(view.shape[0] + 1))
    agrees(brick.fingerprint(view, valid=valid, key=key), view, None, valid, key)


def test_bytes_arrays_read_only_and_empty_tensors_have_a_fingerprint() -> None:
    agrees(brick.fingerprint(b"abc"), np.frombuffer(b"abc", np.uint8))
    agrees(brick.fingerprint(bytearray()), np.zeros(0, np.uint8))
    agrees(brick.fingerprint(array("d", [1.5, 2.5])), np.array([1.5, 2.5]))
    agrees(brick.fingerprint(np.array(2.5, np.float32)), np.array(2.5, np.float32))
    agrees(brick.fingerprint(np.zeros((3, 0, 4))), np.zeros((3, 0, 4)))
    fixed = np.arange(5.0)
    fixed.flags.writeable = False
    agrees(brick.fingerprint(fixed), fixed)
    agrees(brick.fingerprint(np.broadcast_to(np.float64(3), (40, 50))), np.full((40, 50), 3.0))


def test_ctypes_arrays_without_strides_have_a_fingerprint() -> None:
    numbers = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    held = (ctypes.c_float * 4 * 3 * 2).from_buffer_copy(numbers.tobytes())
    assert memoryview(held).strides == numbers.strides, "the memoryview computes the strides itself"
    agrees(brick.fingerprint(held), numbers)
    agrees(brick.fingerprint(held, valid=1), numbers[:1])
    agrees(brick.fingerprint(ctypes.c_double(2.5)), np.array(2.5))
    agrees(brick.fingerprint((ctypes.c_int16 * 0)()), np.zeros(0, np.int16))


@pytest.mark.ci
def test_a_tensor_of_more_than_a_mebibyte_has_the_same_fingerprint() -> None:
    large = np.random.default_rng(1).standard_normal((600, 1000)).astype(np.float32)
    agrees(brick.fingerprint(large), large)
    agrees(brick.fingerprint(large.T), large.T)


def test_other_threads_run_during_a_large_fingerprint_and_may_not_resize_it() -> None:
    """The memory stays locked until the fingerprint is done, even if the other thread runs first."""
    memory, refused = bytearray(1 << 24), []
    done = threading.Event()

    def resize() -> None:
        while not done.is_set():
            try:
                memory.append(0)
                memory.pop()
            except BufferError:
                refused.append(1)

    other = threading.Thread(target=resize)
    other.start()
    try:
        while not refused:
            brick.fingerprint(memory)
    finally:
        done.set()
        other.join()


@pytest.mark.parametrize(
    ("given", "kind", "output"),
    [
        (np.zeros(3, ">f4"), ValueError, "of format '>f' has the byte order of another machine, expected this one's"),
        (
            np.zeros(3, "c16"),
            TypeError,
            "of format 'Zd' (16 bytes) has no fingerprint, expected one of ?bhilqnBHILQNefd",
        ),
        (np.zeros(3, "g"), TypeError, "of format 'g' (16 bytes)"),
        (np.zeros(3, "S4"), TypeError, "of format '4s' (4 bytes)"),
        (np.zeros(3, [("a", "f4")]), TypeError, "of format 'T{f:a:}' (4 bytes)"),
        (memoryview(b"abc").cast("c"), TypeError, "of format 'c' (1 bytes)"),
        ([1.0], TypeError, "must have the buffer protocol or __dlpack__, not <class 'list'>"),
        (np.array([None]), TypeError, "of format 'O' (8 bytes)"),
    ],
)
def test_an_unsupported_object_is_refused_with_a_reason(given: Any, kind: type[Exception], output: str) -> None:
    before = sys.getrefcount(given)
    raised, text = refused(given)
    assert sys.getrefcount(given) == before
    assert raised is kind
    assert output in text


@pytest.mark.parametrize(
    ("arguments", "kind", "output"),
    [
        ({"valid": 4}, ValueError, "valid is 4, expected an integer from 0 to 3"),
        ({"valid": -1}, ValueError, "valid is -1, expected an integer from 0 to 3"),
        ({"valid": 2**70}, ValueError, f"valid is {2**70}, expected an integer from 0 to 3"),
        ({"valid": 1.5}, TypeError, "'float' object cannot be interpreted as an integer"),
        ({"key": 2**128}, ValueError, f"key is {2**128}, expected an integer from 0 to 2^128-1"),
        ({"key": -1}, ValueError, "key is -1, expected an integer from 0 to 2^128-1"),
        ({"key": -(2**200)}, ValueError, "expected an integer from 0 to 2^128-1"),
        ({"key": "secret"}, TypeError, "'str' object cannot be interpreted as an integer"),
        ({"rows": 1}, TypeError, "fingerprint got an unexpected keyword argument 'rows'"),
    ],
)
def test_a_wrong_argument_is_reported_and_the_memory_released(
    arguments: dict[str, Any], kind: type[Exception], output: str
) -> None:
    memory = bytearray(b"abc")
    raised, text = refused(memory, **arguments)
    assert raised is kind
    assert output in text
    memory.append(0)  # this would be refused if the buffer were still in use


def test_a_scalar_tensor_has_no_rows() -> None:
    with pytest.raises(ValueError, match="valid is 1, but a tensor of no dimension has no rows"):
        brick.fingerprint(np.array(1.0), valid=1)
    with pytest.raises(TypeError, match="fingerprint takes one array, then keywords: valid, key"):
        brick.fingerprint(b"", b"")  # type: ignore[call-arg, arg-type]


# ---- DLPack --------------------------------------------------------------------------------------------------------


class Fields(ctypes.Structure):
    """struct DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("dims", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class Producer:
    """Exports the capsule that numpy makes, with some fields changed. Like a torch tensor, it does not export a
    buffer.
    """

    def __init__(self, of: Bytes, versioned: bool = True, **changes: int) -> None:
        self.of, self.versioned, self.changes = of, versioned, changes
        self.asked_device = (1, 0)
        self.version: int | None = None

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.asked_device

    def __dlpack__(self, **keywords: object) -> Any:
        if not self.versioned:
            if keywords:
                raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
            capsule, before = self.of.__dlpack__(), 0
        else:
            assert keywords == {"max_version": (1, 0)}
            capsule, before = self.of.__dlpack__(max_version=(1, 0)), 32
        start = _pointer(capsule, b"dltensor_versioned" if self.versioned else b"dltensor")
        assert start is not None
        fields = Fields.from_address(start + before)
        for name, value in self.changes.items():
            setattr(fields, name, value)
        if self.version is not None:
            ctypes.c_uint32.from_address(start).value = self.version
        return capsule


BF16 = np.arange(100, dtype=np.float32).view(np.uint32).__rshift__(16).astype(np.uint16).reshape(10, 10)
EIGHTS = np.arange(256, dtype=np.uint8)


@pytest.mark.ci
@pytest.mark.parametrize("versioned", [True, pytest.param(False, marks=pytest.mark.ci)])
def test_a_dlpack_tensor_has_the_fingerprint_of_its_memory(versioned: bool) -> None:
    for held in "?bhilqBHILQefd":
        numbers = np.arange(60).reshape(3, 20).astype(held)
        for view in (numbers, numbers.T, numbers[::-1, ::3], numbers[:0], numbers[1, 1]):
            agrees(brick.fingerprint(Producer(np.asarray(view), versioned)), np.asarray(view))
    agrees(brick.fingerprint(Producer(BF16, versioned, code=4), valid=7, key=5), BF16, "bfloat16", 7, 5)
    for code, name in enumerate(("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"), start=10):
        agrees(brick.fingerprint(Producer(EIGHTS, versioned, code=code)), EIGHTS, f"float8_{name}")


def test_dlpack_offsets_and_missing_strides_are_respected() -> None:
    numbers = np.arange(20.0)
    shape = (ctypes.c_int64 * 1)(15)
    changed = Producer(numbers, byte_offset=40, shape=ctypes.addressof(shape), strides=0)
    agrees(brick.fingerprint(changed), numbers[5:])


def test_memory_pinned_for_a_device_is_readable() -> None:
    for device in (3, 11):
        pinned = Producer(BF16, code=4, device=device)
        pinned.asked_device = (device, 0)
        agrees(brick.fingerprint(pinned), BF16, "bfloat16")


class Refusing(np.ndarray[Any, Any]):
    """Refuses to export a buffer. numpy does this for datetimes, and other libraries do it for bfloat16."""

    other: Any

    def __dlpack_device__(self) -> Any:
        return self.other.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.other.__dlpack__(**keywords)


def _refusing(other: Any) -> Any:
    array = np.zeros(10, "M8[s]").view(Refusing)
    array.other = other
    return array


def test_an_object_that_refuses_its_buffer_is_read_by_dlpack() -> None:
    with pytest.raises(ValueError, match="cannot include dtype 'M' in a buffer"):
        memoryview(_refusing(None))
    agrees(brick.fingerprint(_refusing(Producer(BF16, code=4)), valid=7), BF16, "bfloat16", 7)


def test_an_object_that_refuses_both_reports_the_last_reason() -> None:
    assert refused(_refusing(_on(2)))[1].startswith("brick_agent: a tensor on device 2 of DLPack (CUDA)")
    released = memoryview(b"gone")
    released.release()
    assert refused(released) == (ValueError, "operation forbidden on released memoryview object")


@pytest.mark.parametrize("name", sorted(STORED))
def test_an_ml_dtypes_array_has_the_fingerprint_of_its_bits(name: str) -> None:
    random = np.random.default_rng(7)
    bits = random.integers(0, 1 << 8 * stored(name).itemsize, (9, 10), stored(name))
    for of in (bits, bits[::-2, ::3].T, bits[:0], bits[1, 1]):
        whole = np.asarray(of).view(getattr(ml_dtypes, name))
        whole.flags.writeable = False
        before = sys.getrefcount(whole)
        agrees(brick.fingerprint(whole, key=3), np.asarray(of), name, None, 3)
        assert sys.getrefcount(whole) == before
    agrees(brick.fingerprint(bits.view(getattr(ml_dtypes, name)), valid=4), bits, name, 4)


@pytest.mark.parametrize("name", ["float8_e4m3b11fnuz", "int4"])
def test_an_unsupported_ml_dtypes_type_is_refused_with_our_message(name: str) -> None:
    kind, reported = refused(np.zeros(3, getattr(ml_dtypes, name)))
    assert (kind, reported.split(",")[0]) == (TypeError, f"brick_agent: a tensor of dtype '{name}' has no fingerprint")


def test_a_bfloat16_in_foreign_byte_order_is_refused() -> None:
    swapped = np.zeros(3, np.dtype(ml_dtypes.bfloat16).newbyteorder(">"))
    kind, reported = refused(swapped)
    assert (kind, reported.split(",")[0]) == (
        ValueError, "brick_agent: a tensor of dtype 'bfloat16' has the byte order of another machine"
    )  # fmt: skip


def test_a_view_unlike_the_requested_one_is_not_read() -> None:
    class Lying(np.ndarray[Any, Any]):
        def view(self, *_: Any, **__: Any) -> Any:
            return np.zeros(3, np.uint8)

    kind, reported = refused(np.ndarray.view(np.zeros(3, ml_dtypes.bfloat16), Lying))
    assert (kind, reported) == (
        TypeError, "brick_agent: a tensor of dtype 'bfloat16' gave a view of dtype 'uint8', expected 'uint16'"
    )  # fmt: skip


def _on(device: int) -> Producer:
    elsewhere = Producer(EIGHTS)
    elsewhere.asked_device = (device, 0)
    return elsewhere


def _of_version(major: int) -> Producer:
    later = Producer(EIGHTS)
    later.version = major
    return later


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: _on(2),
        ValueError,
        "on device 2 of DLPack (CUDA), expected one in this host's memory: copy it to the CPU",
    ),
    (lambda: _on(99), ValueError, "on device 99 of DLPack (unknown)"),
    (lambda: Producer(EIGHTS, device=10), ValueError, "on device 10 of DLPack (ROCm)"),
    (lambda: Producer(EIGHTS, code=5), TypeError, "DLPack's type 5 with 8 bits and 1 lanes has no fingerprint"),
    (lambda: Producer(EIGHTS, lanes=4), TypeError, "DLPack's type 1 with 8 bits and 4 lanes"),
    (lambda: Producer(EIGHTS, code=17, bits=4), TypeError, "DLPack's type 17 with 4 bits"),
    (lambda: Producer(EIGHTS, dims=65), ValueError, "of 65 dimensions, expected at most 64"),
    (lambda: Producer(EIGHTS, dims=-1), ValueError, "of -1 dimensions, expected at most 64"),
    (lambda: Producer(EIGHTS, data=0), ValueError, "a tensor has no fingerprint: it has no data"),
    (lambda: Producer(EIGHTS, shape=0), ValueError, "of 1 dimensions without a shape"),
    (lambda: _of_version(2), ValueError, "a tensor of DLPack 2.0, expected 1"),
    (lambda: _giving(None), TypeError, "__dlpack__ gave None, expected a capsule 'dltensor' or 'dltensor_versioned'"),
    (lambda: _giving(brick._core.native), TypeError, "__dlpack__ gave <capsule object"),
    (lambda: _placed(None), TypeError, "__dlpack_device__ gave None, expected a pair"),
    (lambda: _placed(("cpu", 0)), TypeError, "'str' object"),
]


def _giving(what: object) -> Any:
    return type("Giving", (Producer,), {"__dlpack__": lambda self, **keywords: what})(EIGHTS)


def _placed(where: object) -> Any:
    return type("Placed", (Producer,), {"__dlpack_device__": lambda self: where})(EIGHTS)


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_an_unreadable_tensor_is_refused_with_the_reason_and_released(number: int) -> None:
    made, kind, reported = REFUSED[number]
    raised, text = refused(made())
    assert raised is kind
    assert reported in text


def test_an_exception_of_the_producer_is_raised() -> None:
    class Refusing(Producer):
        def __dlpack__(self, **keywords: object) -> Any:
            raise BufferError("requires grad")

    with pytest.raises(BufferError, match="requires grad"):
        brick.fingerprint(Refusing(EIGHTS))
    with pytest.raises(AttributeError, match="__dlpack_device__"):
        brick.fingerprint(type("Bare", (), {"__dlpack__": None})())


@pytest.mark.parametrize("versioned", [True, False])
def test_a_capsule_is_always_returned(versioned: bool) -> None:
    """numpy's capsule has a reference to its array until it is deleted."""
    numbers = np.arange(10, dtype=np.uint8)
    before = sys.getrefcount(numbers)
    for changes in ({"code": 5}, {"device": 2}, {"dims": 65}, {"data": 0}):
        refused(Producer(numbers, versioned, **changes))
        assert sys.getrefcount(numbers) == before, changes
    refused(Producer(numbers, versioned), valid=11)
    agrees(brick.fingerprint(Producer(numbers, versioned)), numbers)
    assert sys.getrefcount(numbers) == before


class Deleted(Producer):
    """A producer whose capsule runs Python code when the capsule is deleted."""

    def __init__(self, of: Bytes, **changes: int) -> None:
        super().__init__(of, False, **changes)
        self.deleted: list[int] = []

    def __dlpack__(self, **keywords: object) -> Any:
        own = super().__dlpack__(**keywords)
        self._destroy = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(lambda _: self.deleted.append(int("1")))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.own = own
        return new(_pointer(own, b"dltensor"), b"dltensor", ctypes.cast(self._destroy, ctypes.c_void_p))


def test_a_capsule_whose_deleter_runs_python_keeps_the_exception() -> None:
    good, strange = Deleted(EIGHTS), Deleted(EIGHTS, code=5)
    agrees(brick.fingerprint(good), EIGHTS)
    assert refused(strange)[0] is TypeError
    assert refused(good, valid=257) == (ValueError, "brick_agent: valid is 257, expected an integer from 0 to 256")
    assert (good.deleted, strange.deleted) == ([1, 1], [1])


# ---- DLPack's table of functions -----------------------------------------------------------------------------------


class Table(ctypes.Structure):
    """The table of functions of a type, as in dlpack.h since version 1.3."""

    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        *(
            (name, ctypes.c_void_p)
            for name in ("older", "allocate", "managed_from", "managed_to", "tensor_from", "stream")
        ),
    ]


Describe = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Fields))


def tabled(function: Any, major: int = 1, older: Table | None = None) -> Any:
    """Return an object whose type has such a table of functions; the test fails if the object's capsule is
    requested."""
    table = Table((major, 3), tensor_from=ctypes.cast(function, ctypes.c_void_p))
    if older is not None:
        table.older = ctypes.addressof(older)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule = new(ctypes.addressof(table), b"dlpack_exchange_api", None)
    made: Any = type("Tabled", (), {"__dlpack_c_exchange_api__": capsule, "__dlpack__": None})()
    made.asked, made.kept, made.function, made.table, made.older = 0, [], function, table, older
    return made


def described(of: Bytes, major: int = 1, older: Table | None = None, answer: int = 0, **changes: int) -> Any:
    """Return an object whose table describes an array with some changed fields."""

    def describe(array: Any, into: Any) -> int:
        array.asked += 1
        capsule = of.__dlpack__(max_version=(1, 0))
        start = _pointer(capsule, b"dltensor_versioned")
        assert start is not None
        ctypes.memmove(into, start + 32, ctypes.sizeof(Fields))
        array.kept.append(capsule)  # the capsule owns the memory of the shape, so keep it
        for name, value in changes.items():
            setattr(into.contents, name, value)
        return answer

    return tabled(Describe(describe), major, older)


def refusing(error: BaseException) -> Any:
    """Return an object whose table of functions fails with this exception. A function in the table calls `fileno()` of
    the type, which raises it.
    """

    def fileno(array: Any) -> int:
        raise error

    made = tabled(ctypes.pythonapi.PyObject_AsFileDescriptor)
    type(made).fileno = fileno
    return made


def test_a_tensor_described_by_a_function_table_is_read_in_place() -> None:
    numbers = np.arange(60.0).reshape(3, 20)
    for view in (numbers, numbers.T, numbers[::-1, ::3], numbers[:0], np.asarray(numbers[1, 1])):
        given = described(view)
        before = sys.getrefcount(given)
        agrees(brick.fingerprint(given), view)
        assert (given.asked, sys.getrefcount(given)) == (1, before)
    agrees(brick.fingerprint(described(BF16, code=4), valid=7, key=5), BF16, "bfloat16", 7, 5)
    refused_one = described(EIGHTS)
    before = sys.getrefcount(refused_one)
    assert refused(refused_one, valid=257) == (
        ValueError,
        "brick_agent: valid is 257, expected an integer from 0 to 256",
    )
    assert sys.getrefcount(refused_one) == before


def test_the_owner_of_a_storage_is_held_during_the_whole_read() -> None:
    """While a torch tensor is read, it can get another storage. Then only the reader keeps the old storage alive."""
    reported = []

    class Storage:
        def __del__(self) -> None:
            reported.append("let go")

    def untyped_storage(array: Any) -> Storage:
        reported.append("held")
        return Storage()

    given = described(EIGHTS)
    type(given).untyped_storage = untyped_storage
    type(given).asked = property(lambda self: 0, lambda self, asked: reported.append("described"))
    agrees(brick.fingerprint(given), EIGHTS)
    assert reported == ["held", "described", "let go"]
    assert refused(given, valid=257)[0] is ValueError
    assert reported == 2 * ["held", "described", "let go"]


def test_a_table_of_a_later_version_refers_to_an_older_one() -> None:
    one = described(EIGHTS)
    two = described(BF16, major=2, older=one.table)
    two.kept = one.kept
    agrees(brick.fingerprint(two), EIGHTS)


@pytest.mark.parametrize("without", ["function", "version", "name"])
def test_without_a_supported_table_the_capsule_is_requested(without: str) -> None:
    given = described(EIGHTS, major=3 if without == "version" else 1)
    if without == "function":
        given.table.tensor_from = None
    if without == "name":
        type(given).__dlpack_c_exchange_api__ = brick._core.native
    type(given).__dlpack_device__ = lambda self: (1, 0)
    type(given).__dlpack__ = lambda self, **keywords: BF16.__dlpack__(**keywords)
    agrees(brick.fingerprint(given), BF16)
    assert given.asked == 0


def test_a_refusal_by_a_table_is_one_line_and_an_interrupt_passes() -> None:
    for error, wanted in (
        (RuntimeError("no storage\nraised from x.cpp:92\n"), (BufferError, "brick_agent: no storage")),
        (OSError(), (BufferError, "brick_agent: DLPack raised an exception")),
    ):
        assert refused(refusing(error)) == wanted
    with pytest.raises(KeyboardInterrupt):
        brick.fingerprint(refusing(KeyboardInterrupt()))
    assert refused(described(EIGHTS, answer=-1))[1].endswith("does not describe this tensor, and does not say why")
    assert refused(described(EIGHTS, device=2))[1].startswith("brick_agent: a tensor on device 2 of DLPack (CUDA)")
    assert refused(described(EIGHTS, data=0))[1] == "brick_agent: a tensor has no fingerprint: it has no data"


# ---- the attributes of a tensor that are read
# --------------------------------------------------------------------------


def test_no_attribute_of_a_non_tensor_is_accessed() -> None:
    """Some objects, such as those of torch.fx, record each access to an attribute as a part of a program."""
    asked = []

    class Traced:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return lambda *_, **__: self

    assert refused(Traced())[1].startswith(
        "brick_agent: a tensor must have the buffer protocol or __dlpack__, not <class"
    )
    assert asked == []


class Learning(Producer):
    """Imitates a torch tensor that requires gradients. If it is `negated`, its memory has its values with the opposite
    sign.
    """

    requires_grad = True
    negated = False

    def detach(self) -> Any:
        return Producer(self.of)

    def is_neg(self) -> bool:
        return self.negated

    def __dlpack__(self, **keywords: object) -> Any:
        raise BufferError("requires grad")


def test_a_tensor_with_gradients_is_read_detached() -> None:
    agrees(brick.fingerprint(Learning(BF16)), BF16)


def test_a_lazily_negated_tensor_is_refused() -> None:
    given = Learning(BF16)
    given.negated = True
    assert refused(given)[1].endswith("expected tensor.resolve_neg()")


# ---- released objects ----------------------------------------------------------------------------------------------


def test_a_fingerprint_is_an_immutable_named_tuple() -> None:
    got = brick.fingerprint(np.array([1, np.nan, np.inf, -np.inf], np.float32))
    assert (got.elements, got.bytes, got.nan, got.pos_inf, got.neg_inf) == (4, 16, 1, 1, 1)
    assert isinstance(got, tuple)
    assert got == brick.fingerprint(np.array([1, np.nan, np.inf, -np.inf], np.float32))
    assert hash(got) == hash(copy.deepcopy(got))
    assert pickle.loads(pickle.dumps(got)) == got
    with pytest.raises(AttributeError):
        got.checksum = "0"  # type: ignore[misc]
    assert repr(got).startswith("brick_agent.Fingerprint(checksum='")


def test_every_dtype_has_its_numpy_and_torch_name() -> None:
    named = {brick.fingerprint(np.zeros(1, held)).dtype for held in FORMATS if held not in "nN"}
    assert named | {"bfloat16"} == {name for name in CODES if not name.startswith("float8")}


def test_taking_a_fingerprint_records_nothing_and_opens_no_segment(worker: Any, prefix: str) -> None:
    process = worker("report(brick.fingerprint(b'abc').elements); report(_core._segment_name())")
    assert (process.next_report(), process.next_report()) == (3, "")
    assert process.end() == 0
