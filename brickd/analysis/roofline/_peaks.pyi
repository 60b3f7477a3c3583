"""How fast this processor reads a working set."""

from typing_extensions import Buffer

def reads(buffer: Buffer, duration_ns: int, /) -> tuple[int, int, int]:
    """Read a buffer from its begin to its end, again and again, for so long; other threads run meanwhile.

    Returns: how many bytes it read, and when it began and ended, on CLOCK_MONOTONIC in ns.

    Raises:
        ValueError: the buffer is empty, not a multiple of 256 bytes, or does not begin at one of 64; or the time is
            negative or longer than ten seconds.
    """
