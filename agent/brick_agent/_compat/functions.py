"""Two functions of the old tools: the checksum of the first 64 floats, and the backend of this process.

Owns: what both functions return, which is the same as in the old tools. Must not know: profilers, runs. Invariant:
detect_backend never raises and never loads a library; it reports a GPU only if the host has already loaded torch.
"""

from __future__ import annotations

import sys
from array import array
from functools import cache
from platform import machine

from brick_agent._core import fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_X86 = (("avx512f", "avx512"), ("avx2", "avx2"), ("sse2", "sse2"))
_ARM = (("asimd", "neon"), ("neon", "neon"))


def fnv1a_f32_checksum(data: Any) -> int:
    """Return the checksum of the old tools: FNV-1a of the first 64 numbers as 32-bit floats.

    This checksum ignores all later numbers and the length; `fingerprint(data).checksum` covers everything.

    data: a tensor, as in `fingerprint`, or a list of numbers.

    >>> hex(brick.fnv1a_f32_checksum([1.0, 2.0, 3.0]))
    '0x1de40d89811fe258'
    """
    return int(fingerprint(array("f", data) if isinstance(data, (list, tuple)) else data).fnv1a, 16)


def detect_backend() -> str:
    """Return the backend of this process: cuda, avx512, avx2, sse2, neon or scalar.

    >>> brick.detect_backend() in ("cuda", "avx512", "avx2", "sse2", "neon", "scalar")
    True
    """
    try:
        return "cuda" if sys.modules["torch"].cuda.is_available() else _processor()
    except Exception:  # torch is missing, or only partly loaded
        return _processor()


@cache
def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return processor_backend(machine(), file.read(65536))
    except OSError:
        return "scalar"


def processor_backend(machine: str, cpuinfo: str) -> str:
    """Return the widest vector unit that the kernel reports for the processors."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    listed = (words for title, _, words in lines if title.strip().lower() in ("flags", "features"))
    features = {word for words in listed for word in words.split()}
    known = _X86 if machine in ("x86_64", "i686") else _ARM
    return next((backend for feature, backend in known if feature in features), "scalar")
