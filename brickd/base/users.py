"""Users of this machine: their names, and how to run brickd as one of them.

Owns: how a user is written in messages and commands. Must not know: segments, verbs.
"""

from __future__ import annotations

import os
import pwd
import shlex
from collections.abc import Mapping

from brickd.base.units import plural


def user_name(uid: int) -> str:
    """Return the user's name in the form that sudo accepts: `www`, or `#1001` if the uid has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # in a container, the uid may have no name
        return f"#{uid}"


def as_user(uid: int, *arguments: str) -> str:
    """Return the command that runs brickd as a user.

    >>> as_user(2**31 - 2, "status")
    "sudo -u '#2147483646' brickd status"
    """
    return shlex.join(["sudo", "-u", user_name(uid), "brickd", *arguments])


def others_have(segments: Mapping[int, int]) -> str:
    """Say that other users have segments; `segments` is the number of segments of each user (uid)."""
    by_count = sorted(segments.items(), key=lambda each: (-each[1], each[0]))
    named = ", ".join(f"{user_name(uid)} has {plural(count, 'segment')}" for uid, count in by_count[:3])
    more = f", and {plural(len(by_count) - 3, 'more user')}" if len(by_count) > 3 else ""
    return (
        f"user {user_name(os.geteuid())} has no segments here, and brickd reads only the segments of the user who runs"
        f" it; {named}{more} ({as_user(by_count[0][0], 'status')})"
    )
