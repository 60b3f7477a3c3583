"""Instants as documents have them.

Owns: their one spelling, RFC 3339. Must not know: what happened then. Invariant: whatever number a worker claims, it is
spelled as an instant.
"""

from datetime import UTC, datetime


def rfc3339(ns: int) -> str:
    """An instant since 1970, to the millisecond; what no calendar holds is shown as its beginning.

    >>> rfc3339(1_700_000_000_123_456_789), rfc3339(2**63)
    ('2023-11-14T22:13:20.123Z', '2262-04-11T23:47:16.854Z')
    """
    try:
        moment = datetime.fromtimestamp(ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        moment = datetime.fromtimestamp(0, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
