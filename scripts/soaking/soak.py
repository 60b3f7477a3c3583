"""One run: workers and daemons start and end, then the accounts are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import psutil
from benchmarks.workplace import Workplace

from brickd.datasources.shared_memory import left_behind
from brickd.model.worker_survey import survey
from brickd.shm.segment_files import find
from soaking import growth
from soaking.account import KINDS
from soaking.churn import Churn, Wanted
from soaking.daemon import Daemon
from soaking.judgement import Check, Found, equal, judge
from soaking.plan import SERVICES
from soaking.population import Life, Population, done
from soaking.report import Report
from soaking.samples import Samples

_SHOWN_MAX = 20  # the most problems that are shown; further problems are counted


def run(place: Workplace, wanted: Wanted, progress: Callable[[str], None]) -> Report:
    with place.seen_here():
        population, daemon, samples = Population(place), Daemon(place), Samples()
        try:
            Churn(wanted, population, daemon, samples).run(progress)
            return _settle(place, wanted, population, daemon, samples)
        finally:
            population.leave()
            daemon.leave()


def _settle(place: Workplace, wanted: Wanted, population: Population, daemon: Daemon, samples: Samples) -> Report:
    end, first = daemon.weighed(), samples.first
    assert end is not None
    assert first is not None
    status = daemon.end()
    problems = [*population.problems, *samples.problems]
    checks = [Check(f"problem {n}", text, "none", False) for n, text in enumerate(problems[:_SHOWN_MAX], 1)]
    checks += [
        equal("problems during the run", len(problems), 0),
        equal("counters that decreased", samples.falls, 0),
        equal("exit status of the last daemon", status, 0),
        equal("descriptors of the last daemon at the end, as of the first at the start", end.fds, first.fds),
    ]
    background, words = left_behind()
    found = survey(place.environment["BRICKD_SHM_PREFIX"], background)
    checks.append(equal("refused files, and words on the checkpoint", len(found.refused) + len(words), 0))
    lives, parts = list(population.born.values()), Counter[str]()
    for service in SERVICES:
        of = [life for life in lives if life.plan.service == service]
        workers = [worker for worker in found.workers if worker.service == service]
        parts[service] = sum(worker.together for worker in workers)
        by_kind = {kind: done(of, kind) for kind in KINDS}
        checks += [
            equal(f"{service}: workers, those added up included", parts[service], len(of)),
            *judge(service, by_kind, sum(life.cut_lanes for life in of), Found.of(workers)),
        ]
    ratio = growth.ratio(samples.all, samples.ends_at_s)
    checks += growth.judge(ratio)
    leaks = _leaks(place, population, lives)
    checks += [equal(f"{what} left", n, 0) for what, n in leaks.items()]
    return Report(
        wanted=wanted,
        counts=population.counts,
        daemon_kills=daemon.kills,
        spans=done(lives, "spans"),
        ledger=Found.of(found.workers).ledger,
        grown=growth.growth(samples.all, end),
        daemon_growth=ratio,
        leaks=leaks,
        samples=len(samples.all),
        falls=samples.falls,
        worker_checks=samples.worker_checks,
        workers_compared=samples.workers_compared,
        checks=checks,
    )


def _leaks(place: Workplace, population: Population, lives: list[Life]) -> dict[str, int]:
    """Return the processes and files that should not exist after the end."""
    population.leave()
    children = psutil.Process().children(recursive=True)
    usual = {"lock", "checkpoint"}
    return {
        "segments": len(find(place.environment["BRICKD_SHM_PREFIX"])),
        "files in the runtime directory": sum(path.name not in usual for path in place.runtime.iterdir()),
        "processes": len(children) + sum(life.pidfd >= 0 for life in lives),
    }
