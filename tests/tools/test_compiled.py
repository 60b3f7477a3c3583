"""The fixture that compiles C for tests."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from faults import Compile


def test_the_time_of_a_compiler_does_not_count_for_the_timeout_of_a_test(
    compiled: Compile, prefix: str, tmp_path: Path
) -> None:
    # compiled in each run, because no other source has this comment
    (tmp_path / "slow.c").write_text(f'#include "waits"\nint main(void) {{ return 0; }} // {prefix}\n')
    fifo, left, ends = tmp_path / "waits", list[float](), threading.Event()
    os.mkfifo(fifo)

    def look() -> None:
        while not ends.is_set():
            opened = os.open(fifo, os.O_WRONLY)  # waits until a compiler reads the file
            left.append(signal.getitimer(signal.ITIMER_REAL)[0])
            os.close(opened)

    looks = threading.Thread(target=look)
    looks.start()
    before = signal.getitimer(signal.ITIMER_REAL)[0]
    compiled("slow", (tmp_path / "slow.c",))
    after, while_compiling = signal.getitimer(signal.ITIMER_REAL)[0], left[:]
    ends.set()
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)  # lets the thread go on
    looks.join()
    os.close(reader)
    assert while_compiling
    assert set(while_compiling) == {0}
    assert before >= after > 0
