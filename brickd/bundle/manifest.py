"""The manifest of a bundle: what the archive contains, what is missing, what was removed.

Owns: the schema of `manifest.json`, the promises about redaction in it, the names of the members, the limits of an
archive. Must not know: how a member is made, how an archive is written or read. Invariants: Every member except the
manifest itself is listed with its size and its SHA-256. A part that could not be made is listed with the reason. A
manifest of another archive is hostile: it is checked before it is used.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from brickd.base import json_values
from brickd.base.json_values import listed, optional, require, text, validating, whole

SCHEMA = 1
MANIFEST, README = "manifest.json", "README.txt"
RECORDING_SUFFIX = ".brick"

# The limits of an archive, for the writer and for --check. A status of 1,000 workers takes about 5 MiB.
MEMBERS_MAX = 256
DOCUMENT_BYTES_MAX = 32 << 20
RECORDING_BYTES_MAX = 256 << 20
TOTAL_BYTES_MAX = 1 << 30

# What the redaction of a bundle removes, and what it keeps; also in docs/security.md.
REMOVED = (
    "the name of the host and its domain, and other hosts in http and https addresses",
    "the names of users with an account for people, of the user who made the bundle, and of owners of segments",
    "the paths of home folders",
    "the values of environment variables; a path in a variable of brickd is replaced by the name of the variable",
    "command lines: no part of a bundle contains any",
    "the sources of kernels",
    "statistics and sketches of tensors, positions and texts of steps; sentences that may mention them",
    "checksums, steps, streams and parameters: they have new values, which are equal where the old ones were equal",
)
KEPT = (
    "names of services, workers, bricks, kernels and tensors, and functions with the files that define them",
    "process ids, user ids, uuids, names of programs, and paths outside of home folders",
    "times, counts, sizes, shapes and types of tensors, verdicts, and which workers differ",
    "versions of brickd, Python, its packages and the kernel; limits, and the clock",
)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TEXTS_MAX = 1_000
_SERVICE_MAX = 60


@dataclass(frozen=True, slots=True)
class BundleMember:
    """A file of the archive.

    Attributes:
        about: what the member contains.
        source: where a document comes from: `daemon` or `shared memory`; None for other members.
        notes: what the verb prints about its answer on stderr.
        service: the service of a `diff`.
    """

    name: str
    bytes: int
    sha256: str
    about: str
    source: str | None = None
    notes: tuple[str, ...] = ()
    service: str | None = None


@dataclass(frozen=True, slots=True)
class MissingPart:
    """A member that could not be made, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class BundleManifest:
    """The content of `manifest.json`. `daemon` and `host` are documents that brickd does not read again."""

    made: str
    redacted: bool
    version: str | None
    build: str | None
    daemon: dict[str, Any]
    host: dict[str, Any]
    members: tuple[BundleMember, ...]
    missing: tuple[MissingPart, ...]
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = field(default=())

    def document(self) -> dict[str, Any]:
        """Return the manifest as JSON."""
        return {
            "schema_version": SCHEMA,
            "made": self.made,
            "redacted": self.redacted,
            "redaction": {"removed": list(self.removed), "kept": list(self.kept)},
            "brickd": {"version": self.version, "build": self.build},
            "daemon": self.daemon,
            "host": self.host,
            "members": [asdict(each) | {"notes": list(each.notes)} for each in self.members],
            "missing": [asdict(each) for each in self.missing],
        }


def encoded(document: Any) -> bytes:
    """Encode a document of a bundle: JSON that people can read."""
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False).encode() + b"\n"


def decode(body: bytes) -> BundleManifest:
    """Decode a manifest; raise a ValueError if it is invalid, or of a later version of brickd."""
    with validating():
        found = json_values.document(body, DOCUMENT_BYTES_MAX)
        schema = whole(found["schema_version"], 1)
        if schema != SCHEMA:
            raise ValueError(f"schema_version is {schema}, expected {SCHEMA}: use a later brickd")
        redaction, brickd = found["redaction"], found["brickd"]
        return BundleManifest(
            made=text(found["made"]),
            redacted=json_values.flag(found["redacted"]),
            version=optional(brickd["version"], text),
            build=optional(brickd["build"], text),
            daemon=_object(found["daemon"]),
            host=_object(found["host"]),
            members=_members(found["members"]),
            missing=tuple(
                MissingPart(text(each["name"]), text(each["reason"])) for each in listed(found["missing"], _TEXTS_MAX)
            ),
            removed=_texts(redaction["removed"]),
            kept=_texts(redaction["kept"]),
        )


def _members(found: Any) -> tuple[BundleMember, ...]:
    members = tuple(map(_member, listed(found, MEMBERS_MAX)))
    names = [each.name for each in members]
    require(len(set(names)) == len(names), "each member once", sorted(names))
    return members


def _member(found: dict[str, Any]) -> BundleMember:
    name, sha256 = text(found["name"]), text(found["sha256"])
    require(is_member_name(name), "a plain name", name)
    require(_SHA256.fullmatch(sha256) is not None, "64 hexadecimal digits", sha256)
    return BundleMember(
        name=name,
        bytes=whole(found["bytes"], most=TOTAL_BYTES_MAX),
        sha256=sha256,
        about=text(found["about"]),
        source=optional(found["source"], text),
        notes=_texts(found["notes"]),
        service=optional(found["service"], text),
    )


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(text, listed(value, _TEXTS_MAX)))


def _object(value: Any) -> dict[str, Any]:
    require(isinstance(value, dict), "an object", value)
    return dict(value)


def is_member_name(name: str) -> bool:
    """Whether a member may have this name: a plain name, without folders.

    >>> is_member_name("diff-api.json"), is_member_name("../x"), is_member_name("/x"), is_member_name(".x")
    (True, False, False, False)
    """
    return _NAME.fullmatch(name) is not None


def bytes_max(name: str) -> int:
    """Return the most bytes that a member with this name may have."""
    return RECORDING_BYTES_MAX if name.endswith(RECORDING_SUFFIX) else DOCUMENT_BYTES_MAX


def diff_name(service: str, taken: set[str]) -> str:
    """Return a name for the `diff` of a service that no other member has.

    >>> diff_name("api", set()), diff_name("a/b c", set()), diff_name("a b", {"diff-a_b.json"})
    ('diff-api.json', 'diff-a_b_c.json', 'diff-a_b-2.json')
    """
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", service)[:_SERVICE_MAX]
    name, number = f"diff-{plain}.json", 1
    while name in taken:
        number += 1
        name = f"diff-{plain}-{number}.json"
    return name
