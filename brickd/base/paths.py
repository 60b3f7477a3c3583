"""The paths of a daemon and its clients: the runtime directory and the files in it.

Owns: the paths, which come from the environment or are defaults. Must not know: the content of the files. Invariant: in
the same environment on the same machine, the daemon and every verb use the same paths.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import NamedTuple


class Runtime(NamedTuple):
    """The paths of one daemon.

    Attributes:
        directory: the daemon's runtime directory, with mode 0700, or 0710 if a group may reach the socket.
        state: the directory of the files that survive a restart of the daemon.
    """

    directory: Path
    socket: Path
    state: Path

    @property
    def lock(self) -> Path:
        """The file whose first byte is locked while the daemon runs."""
        return self.directory / "lock"

    @property
    def checkpoint(self) -> Path:
        """The file with the state of the daemon. The daemon replaces it atomically."""
        return self.directory / "checkpoint"

    @property
    def weights(self) -> Path:
        """The file with the state of the workers' weights, which is replaced atomically before the checkpoint."""
        return self.directory / "weights"

    @property
    def recordings(self) -> Path:
        """The directory of recordings that are being written, or that were not fetched yet."""
        return self.state / "recordings"

    @property
    def flight_recordings(self) -> Path:
        """The directory of the recordings that the flight recorder made."""
        return self.state / "flight-recordings"

    def last_day(self, prefix: str) -> Path:
        """The file with the last day's history of the segments with this prefix."""
        return self.state / f"{prefix}last-day"

    @property
    def sources(self) -> Path:
        """The directory of the sources of kernels, with one file for each source."""
        return self.state / "sources"

    @property
    def canaries(self) -> Path:
        """The directory of the definitions of canaries, with one file for each. Workers read them."""
        return self.state / "canaries"

    @property
    def web_token(self) -> Path:
        """The file with the token of the web page, if no other token was given."""
        return self.directory / "web-token"

    @property
    def log(self) -> Path:
        """The log of a detached daemon."""
        return self.directory / "log"


def runtime() -> Runtime:
    """Return the paths for the current environment."""
    directory = Path(os.environ.get("BRICKD_RUNTIME_DIR") or _default())
    socket = Path(os.environ.get("BRICKD_SOCKET") or directory / "socket")
    return Runtime(directory, socket, Path(os.environ.get("BRICKD_STATE_DIR") or _state(directory)))


def _default() -> Path:
    service, session = Path(f"/run/brickd-{_user()}"), os.environ.get("XDG_RUNTIME_DIR")
    return service if not session or _ours(service) else Path(session) / "brickd"


def _ours(directory: Path) -> bool:
    """Whether a system service created the directory for this user.

    If so, the daemon of this service also serves the user's sessions.
    """
    try:
        return directory.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def _state(directory: Path) -> Path:
    """Return the user's state directory. A user without a home directory gets one in the runtime directory.

    In a container, the home directory of a uid that has no name is reported as /.
    """
    if own := os.environ.get("XDG_STATE_HOME"):
        return Path(own) / "brickd"
    home = os.path.expanduser("~")
    return Path(home, ".local", "state", "brickd") if home != "/" and os.path.isdir(home) else directory / "state"


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # in a container, the uid may have no name
        return str(os.geteuid())
