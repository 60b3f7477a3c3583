"""Places where a source can be changed, and a random sample of them.

Owns: the form of a site, the sources to sample from, the sampling. Must not know: languages, tests. Invariant: the same
sources, seed and number give the same mutants in the same order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# The sources whose faults matter most. They write, read, count, store and compare data, or answer queries.
SOURCES = (
    "agent/src/writer/*.[ch]",
    "agent/src/fingerprint/*.[ch]",
    "agent/include/brick_shm.h",
    "brickd/reader/**/*.c",
    "brickd/shm/ledger.py",
    "brickd/daemon/admission.py",
    "brickd/daemon/roster.py",
    "brickd/daemon/collector.py",
    "brickd/daemon/ring_passes.py",
    "brickd/state/checkpoint.py",
    "brickd/state/daemon_state.py",
    "brickd/model/deferred.py",
    "brickd/model/retained_workers.py",
    "brickd/model/windows.py",
    "brickd/analysis/timing/stragglers.py",
    "brickd/analysis/numerics/*.py",
    "brickd/analysis/weights/*.py",
    "brickd/recording/*.py",
    "brickd/api/*.py",
)
# The sources that `--module` may name.
ALL = ("agent/src/**/*.[ch]", "agent/include/*.h", "agent/brick_agent/**/*.py", "brickd/**/*.[ch]", "brickd/**/*.py")


class Site(NamedTuple):
    """A possible change.

    Attributes:
        file: the path, relative to the repository.
        place: the index of the site in the file.
        line: the line of the site.
        change: a description of the change.
    """

    file: str
    place: int
    line: int
    change: str


def sources(tree: Path, module: str | None = None) -> list[Path]:
    """Return the default sources, or the sources whose name ends in this module.

    Raises:
        LookupError: no source has that name.
    """
    found = sorted({path for pattern in (SOURCES if module is None else ALL) for path in tree.glob(pattern)})
    if module is None:
        return found
    named = [path for path in found if module in (path.stem, path.name)]
    if not named:
        raise LookupError(f"no module {module}; for instance: ledger, match_rows, roster.py")
    return named


def draw(sites: Sequence[Site], sample: int | None, seed: int) -> list[Site]:
    """Return a random sample of the sites in the order of the files; None returns all."""
    if sample is None or sample >= len(sites):
        return sorted(sites)
    return sorted(random.Random(seed).sample(sorted(sites), sample))
