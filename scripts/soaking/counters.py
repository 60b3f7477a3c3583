"""Counters that brickd shows and that must never decrease, even when processes die."""

from __future__ import annotations

from collections import Counter
from typing import Any

from soaking.plan import KERNEL

_ANY = 0  # the key for counters that are valid across daemons, because segments and checkpoints keep them


class Counters:
    """The highest value of each counter, by service."""

    def __init__(self) -> None:
        self._highest: dict[tuple[int, str], int] = {}

    def fallen(self, status: Any, life: int | None) -> list[str]:
        """Return the counters that have decreased, as text.

        Args:
            status: the document of `brickd status`.
            life: the number of the daemon, from 1; None if no daemon answered.
        """
        now: Counter[tuple[int, str]] = Counter()
        for entry in status["workers"]:
            service, ledger = entry["service"], entry["ledger"]
            for term in ("begun", "summarized", "rejected", "abandoned", "no_lane"):
                now[_ANY, f"{service}: spans {term}"] += ledger["spans"][term]
            for stream in ("details", "events"):
                now[_ANY, f"{service}: {stream} dropped"] += sum(ledger[stream]["dropped"].values())
            if life is None:
                continue
            # These counters are compared only within the life of one daemon, because the next daemon reads unsaved
            # records again.
            details = ledger["details"]
            now[life, f"{service}: details read"] += details["consumed"] + details["lost_with_daemon"]
            now[life, f"{service}: events consumed"] += ledger["events"]["consumed"]
            for term in ("started", "measured", "bounded", "orphaned"):
                now[life, f"{service}: deferred {term}"] += ledger["deferred"][term]
        for brick in status["bricks"]:
            if brick["name"] != KERNEL:
                now[_ANY, f"spans of {brick['name']}"] = brick["count"]
        fallen = [
            f"{what} decreased from {before:,} to {now[of, what]:,}"
            for (of, what), before in self._highest.items()
            if of in (_ANY, life) and now[of, what] < before
        ]
        self._highest.update(now)
        return fallen
