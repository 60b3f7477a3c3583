"""The result of a run: figures with units in their names, and failed checks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from brickd.shm.ledger import Ledger
from soaking.account import Bounds
from soaking.churn import Wanted
from soaking.growth import Growth
from soaking.judgement import Check

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Report:
    """The result of one run.

    Attributes:
        counts: how often each action was done to workers.
        spans: the number of spans that the workers began, by their own accounts.
        ledger: the sum of brickd's ledgers of all workers.
        daemon_growth: the growth of the last daemon's memory, if it lived long enough.
        leaks: the processes and files that remain, by kind.
        worker_checks: how often the spans of a worker were compared with its account, during or after its life.
        workers_compared: the number of workers that were compared after their end.
    """

    wanted: Wanted
    counts: Mapping[str, int]
    daemon_kills: int
    spans: Bounds
    ledger: Ledger
    grown: Sequence[Growth]
    daemon_growth: float | None
    leaks: Mapping[str, int]
    samples: int
    falls: int
    worker_checks: int
    workers_compared: int
    checks: Sequence[Check]

    @property
    def failed(self) -> list[Check]:
        """Return the failed checks."""
        return [check for check in self.checks if not check.passed]

    @property
    def passed(self) -> bool:
        return not self.failed

    def figures(self) -> dict[str, Any]:
        """Return the figures that are single numbers."""
        return {
            "seed": self.wanted.seed,
            "seconds": self.wanted.seconds,
            "workers": self.wanted.workers,
            "workers_started": self.counts.get("started", 0),
            "worker_forks": self.counts.get("forks", 0),
            "worker_kills": self.counts.get("kills", 0),
            "worker_ends": self.counts.get("ends", 0),
            "worker_suspends": self.counts.get("suspends", 0),
            "daemon_kills": self.daemon_kills,
            "samples": self.samples,
            "worker_checks": self.worker_checks,
            "workers_compared": self.workers_compared,
            "counters_gone_back": self.falls,
            "spans_expected_low": self.spans.low,
            "spans_expected_high": self.spans.high,
            "spans_found": self.ledger.spans["begun"] + self.ledger.spans["no_lane"],
            "unexplained": sum(check.unexplained for check in self.checks),
        }

    def json(self) -> str:
        figures = {
            **self.figures(),
            "ledger": self.ledger.document(),
            **{f"{of}_{each.what}": getattr(each, of) for each in self.grown for of in ("first", "last", "largest")},
            "daemon_growth_ratio": self.daemon_growth,
            "left": dict(self.leaks),
        }
        return as_json(figures, self.checks)

    def text(self) -> str:
        figures = [(name.replace("_", " "), f"{value:,}") for name, value in self.figures().items() if name != "seed"]
        rows = [("seed", str(self.wanted.seed)), *figures]
        rows += [(f"spans {term}", f"{n:,}") for term, n in self.ledger.document()["spans"].items() if n]
        for stream in ("details", "events"):
            terms = self.ledger.document()[stream]
            rows += [(f"{stream} {term}", f"{n:,}") for term, n in terms.items() if term != "dropped" and n]
            rows += [(f"{stream} dropped: {why}", f"{n:,}") for why, n in terms["dropped"].items()]
        rows += [(f"deferred {term}", f"{n:,}") for term, n in self.ledger.document()["deferred"].items() if n]
        for each in self.grown:
            name = each.what.replace("_", " ")
            rows.append((name, f"{each.first:,} first, {each.last:,} last, {each.largest:,} largest"))
        if self.daemon_growth is not None:
            rows.append(("daemon growth ratio", f"{self.daemon_growth:.3f}"))
        rows += [(f"{what} left", str(n)) for what, n in self.leaks.items()]
        return as_text(rows, self.checks)


def as_json(figures: Mapping[str, Any], checks: Sequence[Check]) -> str:
    """Return the report as JSON."""
    passed = all(check.passed for check in checks)
    rows = [asdict(check) for check in checks]
    return json.dumps({"schema_version": SCHEMA_VERSION, "passed": passed, **figures, "checks": rows}, indent=1)


def as_text(rows: Sequence[tuple[str, str]], checks: Sequence[Check]) -> str:
    """Format the report as text: figures, failed checks, the number of passed checks."""
    wide = max(len(name) for name, _ in rows)
    failed = [check for check in checks if not check.passed]
    lines = [f"{name:{wide}}  {value}" for name, value in rows]
    lines += [f"FAILED  {check.name}: {check.seen}; expected: {check.wanted}" for check in failed]
    return "\n".join([*lines, f"{len(checks) - len(failed)} of {len(checks)} checks pass"])
