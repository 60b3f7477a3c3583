"""Equal tables are in memory only once, and finding a table takes the same time however many there are."""

from __future__ import annotations

from brickd.shm.segment_codec import shared


class Compared(tuple[str, int]):
    """A row of a table; the class counts all comparisons of rows."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)

    __hash__ = tuple.__hash__


def rows(worker: int) -> list[tuple[str, int] | None]:
    return [Compared(("other", 0)), None, Compared((f"of {worker} alone", 0))]


def test_equal_rows_are_stored_once() -> None:
    first = shared(rows(0))
    assert shared(rows(0)) is first is shared(first)
    assert shared(rows(1)) is not first
    assert shared(rows(1)) == rows(1)


def test_looking_up_rows_compares_them_only_with_equal_hashes() -> None:
    kept = [shared(rows(worker)) for worker in range(100)]
    Compared.times = 0
    assert all(shared(rows(worker)) is each for worker, each in enumerate(kept))
    assert Compared.times == 2 * len(kept)
