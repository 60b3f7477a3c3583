"""Detects a container and its kind, and gives the commands to change it.

Owns: the commands for each kind of container. Must not know: why a change is needed. Invariant: a command works where
the user is, in a container or on the machine itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from brickd.base.files import read

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Container:
    """Where brickd runs; `kind` is None if no trace of a container was found."""

    kind: Literal["kubernetes", "docker", "podman", "other"] | None
    evidence: str

    def __str__(self) -> str:
        if self.kind is None:
            return "no container"
        return f"a container ({self.evidence})" if self.kind == "other" else f"{self.kind} ({self.evidence})"


def observe(environment: Mapping[str, str], root: Path = Path("/")) -> Container:
    """Look for traces of container runtimes."""
    if "KUBERNETES_SERVICE_HOST" in environment:
        return Container("kubernetes", "KUBERNETES_SERVICE_HOST is set")
    if (root / "run/.containerenv").exists():
        return Container("podman", "/run/.containerenv exists")
    if (root / ".dockerenv").exists():
        return Container("docker", "/.dockerenv exists")
    if manager := read(root / "run/systemd/container"):
        return Container("other", f"/run/systemd/container says {manager.strip()[:40]}")
    if "container" in environment:
        return Container("other", f"container={environment['container'][:40]} is set")
    return Container(None, "no sign of a container")


def enlarged(container: Container, size_bytes: int) -> str:
    """Return the command that gives /dev/shm at least this size, in whole GiB."""
    size = max(1, -(-size_bytes // _GIB))
    match container.kind:
        case None:
            return f"mount -o remount,size={size}G /dev/shm"
        case "kubernetes":
            return (
                f"volumes: [{{name: shm, emptyDir: {{medium: Memory, sizeLimit: {size}Gi}}}}]"
                " and volumeMounts: [{name: shm, mountPath: /dev/shm}]"
            )
        case "podman":
            return f"podman run --shm-size={size}g IMAGE"
        case _:
            return f"docker run --shm-size={size}g IMAGE"


def shared(container: Container) -> str:
    """Return the command that lets two containers share /dev/shm."""
    match container.kind:
        case "kubernetes":
            return (
                "volumes: [{name: shm, emptyDir: {medium: Memory}}]"
                " and in both containers volumeMounts: [{name: shm, mountPath: /dev/shm}]"
            )
        case "podman":
            return "podman run --ipc=container:SERVER IMAGE"
        case _:
            return "docker run --ipc=shareable SERVER && docker run --ipc=container:SERVER IMAGE"


def run_as(container: Container, user: str) -> str:
    """Return the command that runs brickd as `user`, which is a name, or a # followed by a uid."""
    match container.kind:
        case None:
            return f"sudo -u {shlex.quote(user)} brickd status"
        case "kubernetes":
            return f"securityContext: {{runAsUser: {user.removeprefix('#')}}}"
        case "podman":
            return f"podman run --user {shlex.quote(user.removeprefix('#'))} IMAGE"
        case _:
            return f"docker run --user {shlex.quote(user.removeprefix('#'))} IMAGE"


def more_memory(container: Container, group: str, limit_bytes: int) -> str:
    """Return the command that raises the memory limit of this control group."""
    match container.kind:
        case None:
            return f"echo {limit_bytes} > {group}"
        case "kubernetes":
            return f"resources: {{limits: {{memory: {-(-limit_bytes // (1 << 20))}Mi}}}}"
        case "podman":
            return f"podman update --memory={limit_bytes} CONTAINER"
        case _:
            return f"docker update --memory={limit_bytes} CONTAINER"
