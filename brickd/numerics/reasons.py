"""Why what stands side by side is not compared.

Owns: the words for it, by what documents call each reason. Must not know: which reason there is when.
"""

from __future__ import annotations

REASONS = {
    "dtype": "another dtype",
    "shape": "another shape",
    "form": "inputs of another form",
    "backend": "another backend",
    "params": "other params, or weights of another generation",
    "valid": "other valid rows",
    "relation": "another relation",
    "repeats": "not as often in each",
    "unsteady": "most contradict themselves",
    "work": "another step's work",
    "values": "recorded without values (record --values)",
    "stateful": "of stateful kernels (stateful=False where the inputs show all)",
    "shard": "another shard",
    "lost": "that records which were lost may explain",
    "range": "of numbers too large for a sketch",
}
