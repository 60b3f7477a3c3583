"""How fast this processor reads a working set, and multiplies and adds.

The work is done in slots of a millisecond of CLOCK_MONOTONIC. Each function works until `until_ns`, in at least one and
at most 1,024 slots. For each slot it returns the number of the slot, the amount of work, and the begin, the end and the
processor time of the thread in ns. A function skips a slot if it missed the start. The functions release the GIL.
"""

from typing_extensions import Buffer

Parts = list[tuple[int, int, int, int, int]]

def reads(buffer: Buffer, offset: int, until_ns: int, /) -> tuple[Parts, int]:
    """Read a buffer repeatedly from an offset; return the bytes per slot and the next offset.

    Raises:
        ValueError: the buffer is empty, not a multiple of 256 bytes, or not aligned to 64; the offset is not a multiple
            of 256 within it.
    """

def madds(instructions: str, number_bytes: int, until_ns: int, /) -> Parts:
    """Multiply and add numbers of 4 or 8 bytes; return the operations per slot, two per number.

    Raises:
        ValueError: this processor does not have these instructions, or the numbers have another size.
    """

def sets() -> list[str]:
    """The instruction sets that `madds` can use on this processor, the widest first."""
