"""The writer in programs without Python, built as they would build it."""

from __future__ import annotations

from pathlib import Path

from conftest import WRITER, reading, readings
from faults import NATIVE, Compile, counts, exact, native


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


def test_a_writer_that_is_unloaded_ends_as_at_exit_and_can_be_loaded_again(compiled: Compile, prefix: str) -> None:
    writer = compiled("writer.so", WRITER, "-shared", "-fPIC")
    with native(compiled("unload", (NATIVE / "unload.c",)), str(writer)) as process:
        assert process.heard() == 5
        assert exact(reading(prefix)) == {"begun": 5, "summarized": 5}
        process.go()
        assert process.heard() == 0
        assert readings(prefix) == []
        process.go()
        assert process.heard() == 7
        assert exact(reading(prefix)) == {"begun": 7, "summarized": 7}
        process.go()
        assert process.end() == 0
