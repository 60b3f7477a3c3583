"""The table of sites: the name and layer for each index, and the limit on their count."""

from __future__ import annotations

import pytest

from brickd.shm import _reader
from brickd.shm import sites as module
from brickd.shm.sites import Site, Sites


def test_sites_are_known_by_number_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SITES_MAX", 2)
    known = Sites()
    first, second, third = (Site("k", layer, "mlp") for layer in range(3))
    numbers = [known.number(each) for each in (first, second, third)]
    assert [known[number] for number in numbers] == [first, second, Site(f"site#{numbers[2]:x}", -1, "other")]
    assert known.number(third) == numbers[2]


def test_a_site_number_keeps_the_first_position_recorded_for_it() -> None:
    known = Sites()
    number = known.number(Site("k", 1, "mlp"))
    assert known.number(Site("k", 1, "norm")) == number
    assert known[number] == Site("k", 1, "mlp")
    assert known[number ^ _reader.SITE_STATEFUL] == Site("k", 1, "mlp")


def test_adding_to_a_copy_leaves_the_original_unchanged() -> None:
    known = Sites()
    number = known.number(Site("k", 1, "mlp"))
    copy = known.copy()
    later = copy.number(Site("later", 2, "mlp"))
    assert (copy[number].kernel, copy[later].kernel) == ("k", "later")
    assert known[later].kernel == f"site#{later:x}"
