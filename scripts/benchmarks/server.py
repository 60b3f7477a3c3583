"""`scripts/bench server`: the cost of starting a server of torch models with `brickd run`.

There are two questions. How much longer does an instrumented module take? Does the server answer as many requests as
without brickd, and as fast? The servers of all settings (arms) run at the same time. Each round sends requests to one
server after the other, in a shuffled order, and compares each with the plain server.
"""

from __future__ import annotations

import http.client
import importlib.util
import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from benchmarks import machine
from benchmarks.goals import Goal
from benchmarks.report import Report, Table
from benchmarks.running import running
from benchmarks.workplace import Workplace, progress

HELP = "a server of a transformer with and without brickd: requests/s, p99, and the cost of a module"

PAIRS, QUICK_PAIRS = 24, 4
_ROUNDS, _QUICK_ROUNDS = 200, 40
_REQUESTS = 60  # requests to one server in a round
_CONNECTIONS = 2
_RESAMPLED = 2_000
_SEED = 2026
_WANTED = ("torch", "transformers")
MODULE = Goal(0.5)  # the time that an instrumented module may add, in µs
UNWANTED = Goal(0.15)  # the time that a module may add in a step without rows, in µs


class Arm(NamedTuple):
    """A server with certain settings, which is compared with the plain server."""

    name: str
    arm: str
    run: bool = False
    variables: Mapping[str, str] = {}
    has_goal: bool = False


PLAIN = Arm("without brickd", "plain")
ARMS = (
    PLAIN,
    Arm("brickd run, default settings", "plain", True, {}, True),
    Arm("empty wrappers of the same parts", "wrapped"),
    Arm("every module timed", "every", variables={"BRICKD_FINGERPRINTS": "off"}),
    Arm("every module fingerprinted in each step", "every", variables={"BRICKD_FINGERPRINTS": "all"}),
)
_ROWS = 4
_COLUMNS = (64, 1024, 4096)
_ROOMY = {"BRICKD_EVENTS": "1048576"}  # a large ring, because dropped records would make the server look fast


def run(place: Workplace, quick: bool) -> Report:
    """Measure modules and requests."""
    missing = [name for name in _WANTED if importlib.util.find_spec(name) is None]
    if missing:
        why = f"no {' and '.join(missing)} in .venv: .venv/bin/pip install {' '.join(missing)}"
        row = {"case": "server", "goal": "1 in both intervals", "passed": None, "skipped": why}
        return Report("server", machine.facts(), [Table("server", "Requests", [row])])
    rounds = _QUICK_ROUNDS if quick else _ROUNDS
    tables = [_modules(place, rounds), _rows(place, rounds), _requests(place, QUICK_PAIRS if quick else PAIRS)]
    return Report("server", machine.facts(), tables)


# ---- a module


def _modules(place: Workplace, rounds: int) -> Table:
    rows = []
    with running(place):
        for name, setting in (("timed", "off"), ("timed, one step of 64 fingerprinted", ""), ("fingerprinted", "all")):
            progress(f"an instrumented module, {name}")
            variables = {"BRICKD_FINGERPRINTS": setting, **_ROOMY}
            found = place.ask("wrapped", rounds, **variables)
            of, empty = found["instrumented"], found["wrapped"]
            has_goal = setting == "off"
            rows.append(
                {
                    "case": name,
                    "added_us_min": of["min"] / 1e3,
                    "added_us_median": of["median"] / 1e3,
                    "empty_wrapper_us_min": empty["min"] / 1e3,
                    "goal": str(MODULE) if has_goal else None,
                    "passed": MODULE.met(of["min"] / 1e3, of["median"] / 1e3) if has_goal else None,
                    "skipped": None,
                }
            )
    return Table("modules", f"Added to a module that does nothing, 64 of them in a step; {rounds} rounds", rows)


def _rows(place: Workplace, rounds: int) -> Table:
    progress("a module that is watched for rows")
    found = []
    for columns, recorded, least, median, refused in place.ask("row_cost", rounds, _ROWS, *_COLUMNS, **_ROOMY):
        # The goal is 1 µs for the call, 0.5 µs for each row and for each input row, and 0.2 µs for each KiB of all
        # these rows.
        goal = Goal(1 + 2 * _ROWS * (0.5 + 0.2 * columns * 4 / 1024)) if recorded else UNWANTED
        found.append(
            {
                "case": f"{_ROWS} rows of {columns} float32, {'' if recorded else 'not '}recorded",
                "added_us_min": least / 1e3,
                "added_us_median": median / 1e3,
                "goal": str(goal),
                "passed": refused is None and goal.met(least / 1e3, median / 1e3),
                "skipped": refused,
            }
        )
    return Table("rows", f"Added to a module that is watched for rows only; {rounds} rounds", found)


# ---- requests


class Turn(NamedTuple):
    """One server in one round: its requests per second, and the time of each request."""

    rate: float
    seconds: Sequence[float]


@contextmanager
def _serving(place: Workplace, arm: Arm) -> Iterator[Callable[[int], Turn]]:
    begin = ["-m", "brickd", "run", "--service", "bench", "--"] if arm.run else []
    served = [sys.executable, "-m", "benchmarks.served", arm.arm]
    process = subprocess.Popen(
        [*([sys.executable, *begin] if begin else []), *served],
        env=place.environment | _ROOMY | {"BRICKD_SERVICE": arm.name} | dict(arm.variables),
        cwd=place.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, ThreadPoolExecutor(_CONNECTIONS) as pool:
        try:
            if not (line := process.stdout.readline()):
                raise RuntimeError(f"the server {arm.name} did not start")
            connections = [http.client.HTTPConnection("127.0.0.1", int(line)) for _ in range(_CONNECTIONS)]

            def turn(seed: int) -> Turn:
                began = time.perf_counter()
                share = _REQUESTS // _CONNECTIONS
                parts = [
                    pool.submit(_asked, each, range(seed + n * share, seed + (n + 1) * share))
                    for n, each in enumerate(connections)
                ]
                seconds = [took for part in parts for took in part.result()]
                return Turn(len(seconds) / (time.perf_counter() - began), seconds)

            yield turn
        finally:
            process.stdin.close()
            process.wait(30)


def _asked(connection: http.client.HTTPConnection, seeds: range) -> list[float]:
    took = []
    for seed in seeds:
        began = time.perf_counter()
        connection.request("GET", f"/generate?seed={seed}")
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"a request failed: {answer.status}")
        took.append(time.perf_counter() - began)
    return took


def _requests(place: Workplace, pairs: int) -> Table:
    chance = random.Random(_SEED)
    turns: dict[str, list[Turn]] = {arm.name: [] for arm in ARMS}
    with running(place), ExitStack() as stack:
        servers = {arm.name: stack.enter_context(_serving(place, arm)) for arm in ARMS}
        for turn in servers.values():
            turn(0)  # the first request is not timed: it instruments the model
        for number in range(pairs):
            progress(f"requests, round {number + 1} of {pairs}")
            for name in chance.sample(list(servers), len(servers)):
                turns[name].append(servers[name](_REQUESTS * (number + 1)))
    rows = [_row(arm, turns[arm.name], turns[PLAIN.name]) for arm in ARMS]
    title = (
        f"{pairs} rounds of {_REQUESTS} requests of {_CONNECTIONS} clients; ratios to the plain server, 95 % intervals"
    )
    return Table("server", title, rows)


def _row(arm: Arm, turns: Sequence[Turn], plain: Sequence[Turn]) -> dict[str, Any]:
    rates = interval([math.log(one.rate / other.rate) for one, other in zip(turns, plain, strict=True)])
    late = late_interval(turns, plain, random.Random(_SEED))
    holds = all(low <= 1 <= high for low, high in (rates, late))
    return {
        "case": arm.name,
        "requests_per_s": statistics.median(turn.rate for turn in turns),
        "p99_ms": 1e3 * p99(turns),
        "rate_ratio_low": rates[0],
        "rate_ratio_high": rates[1],
        "p99_ratio_low": late[0],
        "p99_ratio_high": late[1],
        "goal": "1 in both intervals" if arm.has_goal else None,
        "passed": holds if arm.has_goal else None,
        "skipped": None,
    }


def interval(logs: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean of ratios, by the t distribution of their logarithms.

    For 23 degrees of freedom, the factor `t` is 2.07; for 3 degrees, it is 3.18.
    """
    mean, degrees = statistics.fmean(logs), len(logs) - 1
    z = statistics.NormalDist().inv_cdf(0.975)
    t = z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    t += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean - half), math.exp(mean + half)


def p99(turns: Sequence[Turn]) -> float:
    """Return the p99 of the times of all requests in these turns."""
    every = sorted(took for turn in turns for took in turn.seconds)
    return every[min(len(every) - 1, math.ceil(0.99 * len(every)) - 1)]


def late_interval(turns: Sequence[Turn], plain: Sequence[Turn], chance: random.Random) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of two p99 values: of these turns, and of the plain server's turns.

    Both are computed again and again from randomly chosen rounds.
    """
    rounds = range(len(turns))
    found = []
    for _ in range(_RESAMPLED):
        drawn = chance.choices(rounds, k=len(turns))
        found.append(p99([turns[n] for n in drawn]) / p99([plain[n] for n in drawn]))
    found.sort()
    return found[int(0.025 * len(found))], found[int(0.975 * len(found)) - 1]
