"""Who is drained, and for whom there is no room."""

from __future__ import annotations

import os

import pytest
from conftest import SHM
from forge import seal, with_header

from brickd.collector import SECOND, Collector
from brickd.memory import Memory

PLACES = 8
NOBODY = 1234


def put(prefix: str, number: int, uid: int) -> str:
    """A segment of that user's."""
    file = f"{prefix}{number}"
    (SHM / file).write_bytes(seal(bytearray(with_header(uuid=os.urandom(16), uid=uid))))
    os.chown(SHM / file, uid, -1)
    return file


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
def test_another_user_has_a_quarter_of_the_places_and_leaves_the_others_theirs(prefix: str) -> None:
    theirs = [put(prefix, number, NOBODY) for number in range(20)]
    ours = [put(prefix, number, 0) for number in range(20, 24)]
    said: list[str] = []
    loop = Collector(Memory(prefix), lambda _: None, lambda kind, text, **_: said.append(text), workers_max=PLACES)
    try:
        loop.tick(0)
        attached = {each.segment.name: each.segment.uid for each in loop.roster.attached.values()}
        assert sorted(attached.values()) == [0] * 4 + [NOBODY] * 2
        refused = {file: each.refused.reason for file, each in loop.directory.quarantined.items()}
        assert set(refused) == set(theirs) - set(attached)
        assert set(refused.values()) == {"not drained: 2 workers of user 1234 are, and no more"}
        assert set(ours) < set(attached)
        # Nobody lives in them: after five seconds they are dead, removed, and others have their places.
        for second in (1, 7, 14):
            loop.tick(second * SECOND, look=True)
        assert not {SHM / file for file in attached} & set(SHM.iterdir())
        assert [each.segment.uid for each in loop.roster.attached.values()] == [NOBODY] * 2
    finally:
        loop.end(20 * SECOND)


def test_there_are_only_so_many_places(prefix: str) -> None:
    for number in range(PLACES + 3):
        put(prefix, number, os.geteuid())
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, workers_max=PLACES)
    try:
        loop.tick(0)
        assert len(loop.roster.attached) == PLACES
        reasons = {each.refused.reason for each in loop.directory.quarantined.values()}
        assert (len(loop.directory.quarantined), reasons) == (3, {"not drained: 8 workers are, and no more"})
    finally:
        loop.end(SECOND)
