"""Who of the dead is forgotten, and what goes with them: by any name that brickd shows, with a daemon or without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from forge import golden, segment_of

from brickd.memory import Gone, Memory
from brickd.reading import Reading


def read(uuid: str) -> Reading:
    with segment_of(golden()) as segment:
        reading = segment.read()
    header: Any = {**reading.header, "uuid": bytes.fromhex(uuid), "service": b"api"}
    return replace(reading, header=header)


ONE, TWO = (f"{number:032x}" for number in (1, 2))


def test_several_that_were_added_up_are_nobody_and_are_shown_by_what_they_are_called_together() -> None:
    memory = Memory("brickd-")
    for uuid in (ONE, TWO):
        memory.add_up(Gone(f"api/{uuid[-1]}", read(uuid)))
    assert memory.names() == {}
    assert memory.background().names == {ONE: "api/older"}
