"""How fast this processor reads a working set, and multiplies and adds.

Work is done in slots of a millisecond of CLOCK_MONOTONIC. Each function works slot by slot until `until_ns`, at least
in one and at most in 1,024, and returns for each: its number, how much was done in it, the begin, the end and the
processor time of the thread in ns. A slot that the thread did not see the begin of is missing. Other threads run
meanwhile.
"""

from typing_extensions import Buffer

Parts = list[tuple[int, int, int, int, int]]

def reads(buffer: Buffer, offset: int, until_ns: int, /) -> tuple[Parts, int]:
    """Read a buffer from an offset on, again and again; returns the bytes in each slot, and the next offset.

    Raises:
        ValueError: the buffer is empty, not a multiple of 256 bytes, or not aligned to 64; the offset is not a multiple
            of 256 within it.
    """

def madds(instructions: str, number_bytes: int, until_ns: int, /) -> Parts:
    """Multiply and add numbers of 4 or 8 bytes in registers; returns the operations in each slot, two for each number.

    Raises:
        ValueError: this processor does not have these instructions, or the numbers have another size.
    """

def sets() -> list[str]:
    """The instruction sets that `madds` can use on this processor, the widest first."""
