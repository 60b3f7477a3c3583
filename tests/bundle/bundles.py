"""Bundles for tests: real ones, and forged archives."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verbs import brickd

Members = Mapping[str, bytes]


def bundle(path: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    """Make a bundle with the command; return its report."""
    result = brickd("bundle", "-o", str(path), "--json", *arguments, **environment)
    assert result.returncode == 0, result.stderr
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def contents(path: Path) -> dict[str, bytes]:
    """Return the content of each member."""
    with tarfile.open(path) as tar:
        found = {head.name: tar.extractfile(head) for head in tar}
        return {name: b"" if file is None else file.read() for name, file in found.items()}


def documents(path: Path) -> dict[str, Any]:
    """Return the JSON documents of a bundle, without the ends of their names."""
    return {
        name.removesuffix(".json"): json.loads(content)
        for name, content in contents(path).items()
        if name.endswith(".json")
    }


def manifest(of: Members, **changed: Any) -> bytes:
    """Return a manifest of these members."""
    listed: list[dict[str, Any]] = [
        {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "about": "",
         "source": None, "notes": [], "service": None}
        for name, content in of.items()
    ]  # fmt: skip
    document = {
        "schema_version": 1, "made": "2026-01-01T00:00:00Z", "redacted": True, "redaction": {"removed": [], "kept": []},
        "brickd": {"version": "0.1.0", "build": None}, "daemon": {}, "host": {}, "members": listed, "missing": [],
    }  # fmt: skip
    return json.dumps(document | changed).encode()


def head(name: str, length: int = 0, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    """Return the header of a member."""
    made = tarfile.TarInfo(name)
    made.size, made.type = length, kind
    return made


def forged(path: Path, members: Sequence[tuple[tarfile.TarInfo, bytes]], *, form: int = tarfile.USTAR_FORMAT) -> Path:
    """Write an archive with these headers and contents."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=form) as tar:
        for each, content in members:
            tar.addfile(each, io.BytesIO(content))
    path.write_bytes(gzip.compress(plain.getvalue(), 1))
    return path


def archived(path: Path, members: Members) -> Path:
    """Write an archive with these members."""
    return forged(path, [(head(name, len(content)), content) for name, content in members.items()])


def valid(members: Members) -> dict[str, bytes]:
    """Return members with their manifest."""
    return {"manifest.json": manifest(members), **members}
