"""The writer's functions: a worker calls them without the extension, in any order."""

from __future__ import annotations

from conftest import WRITER
from faults import Compile

_PROGRAM = """
import ctypes
from ctypes import POINTER, byref, c_double, c_float, c_uint32, c_uint64, c_void_p, pointer
w = ctypes.CDLL({writer!r})
class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_uint32), ("dims", c_uint32), ("shape", c_void_p),
                ("strides", c_void_p), ("valid", c_uint64)]
class At(ctypes.Structure):
    _fields_ = [("layer", POINTER(c_uint32)), ("step", POINTER(c_uint64)), ("position", POINTER(c_uint64)),
                ("params", c_uint64), ("backend", c_uint32), ("relation", c_uint32), ("state", c_uint32),
                ("of", c_uint32)]
class Taken(ctypes.Structure):
    _fields_ = [("checksum", c_uint64), ("fnv1a", c_uint64), ("elements", c_uint64), ("bytes", c_uint64),
                ("infinite", c_uint64 * 3), ("statistics", c_double * 4), ("sketch", c_float * 16),
                ("valid", c_uint64), ("extents_of", c_uint64 * 6), ("dims", c_uint32), ("dtype", c_uint32),
                ("extents", c_uint32), ("refused", c_uint32)]
class Rows(ctypes.Structure):
    _fields_ = [("inputs", Taken * 4), ("at", c_uint64 * 4), ("rows", c_uint64), ("shape", ctypes.c_int64 * 64),
                ("leading", c_uint32), ("count", c_uint32)]
class History(ctypes.Structure):
    _fields_ = [("sum", c_uint64), ("lineage", c_uint64), ("content", c_uint64), ("tokens", c_uint32),
                ("unknown", c_uint32)]
class HistoryRow(ctypes.Structure):
    _fields_ = [("history", c_uint64), ("lineage", c_uint64), ("at", c_uint64), ("position", c_uint32)]
class HistoryRows(ctypes.Structure):
    _fields_ = [("count", c_uint32), ("seen", c_uint32), ("turn", c_uint32), ("limit", c_uint64), ("way", c_uint64),
                ("rows", c_uint64), ("factors", c_uint64 * 4), ("key", c_void_p), ("row", HistoryRow * 4)]
w.brick_name.restype = c_uint32
w.brick_take.restype = ctypes.c_char_p
w.brick_pending.restype = w.brick_step_after.restype = c_uint64
for function, types in dict(
    brick_begin=(c_uint32, c_void_p, POINTER(c_uint64)), brick_end=(c_uint32, c_void_p, c_uint64, c_uint64),
    brick_record=(c_uint32, c_void_p, c_uint64, c_uint64, c_uint64), brick_layer_begin=(c_uint32, c_void_p),
    brick_layer_end=(c_uint32, c_void_p), brick_step_end=(c_uint32, c_void_p, c_uint64, c_uint64),
    brick_take=(c_uint32, c_void_p, c_void_p, c_void_p, c_void_p),
    brick_checksum=(c_uint32, c_void_p, c_void_p, c_void_p, c_void_p, c_uint32),
    brick_wants=(c_uint32, c_void_p, c_void_p), brick_step_after=(c_uint64, c_uint64), brick_in_step=(c_void_p,),
    brick_name=(ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p),
    brick_rows_wanted=(c_uint32, c_void_p, c_void_p, c_uint32), brick_rows_choose=(c_void_p, c_void_p, c_void_p),
    brick_rows_record=(c_uint32, c_void_p, c_void_p, c_void_p, c_void_p), brick_rows_turn=(c_uint32, c_uint32),
    brick_history_begin=(c_void_p, c_uint64, c_uint64, c_uint32, c_void_p),
    brick_history_extend=(c_void_p, c_void_p, c_void_p, c_uint32, c_uint64, c_uint64), brick_history_end=(c_void_p,),
    brick_history_truncate=(c_void_p, c_void_p, c_uint32, c_uint64),
    brick_history_lose=(c_void_p, ctypes.c_char_p, ctypes.c_size_t),
).items():
    getattr(w, function).argtypes = types
DONE, FIRST, LAST, JOINED, REFUSED, UNMATCHED, UNNAMED = 0, 1, 2, 4, 8, 16, 2**32 - 1
NEW, ON, OFF = 0, 2, 3
def name(text, category=None):
    return w.brick_name(text.encode(), len(text.encode()), category and category.encode())
def take(kernel, at=None, tensor=None, size=4):
    shape = (ctypes.c_int64 * 1)(size)
    data = ctypes.create_string_buffer(bytes(range(1, size + 1)), size)
    taken = Taken()
    tensor = tensor or Tensor(ctypes.addressof(data), 6, 1, ctypes.addressof(shape), None, 2**64 - 1)
    why = w.brick_take(kernel, None, at and byref(at), byref(tensor), byref(taken))
    return taken, why
def checksum(kernel, at=None, inputs=(), taken=None):
    taken = taken or take(kernel, at)[0]
    inputs = (Taken * len(inputs))(*inputs)
    return w.brick_checksum(kernel, None, at and byref(at), byref(taken), inputs, len(inputs))
def of_array(array, dtype=12):
    numbers = (ctypes.c_int64 * (2 * array.ndim))(*array.shape, *array.strides)
    tensor = Tensor(array.ctypes.data, dtype, array.ndim, ctypes.addressof(numbers),
                    ctypes.addressof(numbers) + 8 * array.ndim, 2**64 - 1)
    tensor.kept = array, numbers  # its memory
    return tensor
def chosen(tensor):
    rows = Rows()
    w.brick_rows_choose(None, byref(tensor), byref(rows))
    return rows
def recorded_rows(kernel, tensor, output, at=None):
    rows = chosen(tensor)
    return w.brick_rows_record(kernel, None, at and byref(at), byref(output), byref(rows))
def control(flags): os.pwrite(w.brick_segment_fd(), flags.to_bytes(4, "little"), 4096)
"""


def c_calls(compiled: Compile) -> str:
    """Return the first lines of a worker's program. With them, the program can call the writer's functions; `w` is a
    second writer.
    """
    return _PROGRAM.format(writer=str(compiled("writer.so", WRITER, "-shared", "-fPIC")))
