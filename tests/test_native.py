"""The writer in programs without Python, built as they would build it."""

from __future__ import annotations

from pathlib import Path

from conftest import WRITER, reading
from faults import Compile, counts, exact, native


def test_what_a_constructor_records_is_counted(compiled: Compile, prefix: str, tmp_path: Path) -> None:
    source = tmp_path / "early.c"
    source.write_text(
        """
        #include "brick_agent.h"
        #include <unistd.h>
        __attribute__((constructor)) static void early(void)
        {
            uint32_t brick = brick_name("early", 5, NULL);
            brick_begin(brick, NULL, NULL);
            brick_end(brick, NULL, 0, 0);
        }
        int main(void)
        {
            char turn;
            return write(1, "1\\n", 2) == 2 && read(0, &turn, 1) == 1 ? 0 : 4;
        }
        """
    )
    with native(compiled("early", (source, *WRITER), "-O0")) as process:
        process.heard()
        got = reading(prefix)
        assert counts(got) == {"early": 1}
        assert exact(got) == {"begun": 1, "summarized": 1}
        process.go()
        assert process.end() == 0
