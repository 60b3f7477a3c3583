"""The view `fingerprints`: exports the fingerprints of workers, for comparisons elsewhere.

Owns: the schema of the document. Must not know: what the fingerprints are used for.
"""

from __future__ import annotations

from brickd.analysis.numerics import fingerprint_export
from brickd.datasources.world import World
from brickd.query.queries import FingerprintsQuery
from brickd.views.common import Answer, begun


def answer(world: World, query: FingerprintsQuery) -> Answer:
    """Export the stored fingerprints of some workers."""
    workers = world.survey().workers
    if query.uuids:
        workers = [worker for worker in workers if worker.reading.uuid in query.uuids]
    return Answer({**begun(world), **fingerprint_export.document(world.numerics(workers))})
