"""How many there are of what, in words.

Owns: none, one and many. Must not know: what is counted, how large numbers are written for a screen. Invariant: of one
thing nothing is said in the plural.
"""

NOBODY = "no workers: no process of this user records now (try: brickd demo)"


def noun(n: int, one: str, more: str | None = None) -> str:
    """What stands behind the number `n`.

    >>> noun(1, "span"), noun(0, "span"), noun(2, "it was", "they were")
    ('span', 'spans', 'they were')
    """
    return one if n == 1 else more or f"{one}s"


def many(n: int, one: str, more: str | None = None) -> str:
    """The number, in full, and what stands behind it.

    >>> many(1, "name was", "names were"), many(1_234_567, "span")
    ('1 name was', '1,234,567 spans')
    """
    return f"{n:,} {noun(n, one, more)}"
