"""RemoveIPC: systemd-logind deletes a user's segments when their last session ends.

Owns: the affected users. Must not know: segments. Invariants: Settings are read in systemd's own order. The main file
comes first: the first one in /etc, /run, /usr/local/lib, /usr/lib. Then come all drop-ins, sorted by name; a drop-in
hides those of the same name in later folders. The last valid boolean counts. System users are not affected.
"""

from __future__ import annotations

import pwd
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from brickd.base.files import read
from brickd.base.units import listed
from brickd.doctor.check import CheckResult, fine

_FOLDERS = ("etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd")
_BOOLEANS = dict.fromkeys(("1", "yes", "y", "true", "t", "on"), True) | dict.fromkeys(
    ("0", "no", "n", "false", "f", "off"), False
)
_SYS_UID_MAX = 999  # the default if login.defs does not set it


@dataclass(frozen=True, slots=True)
class User:
    """A user who has segments here, or could have segments."""

    name: str
    system: bool
    lingering: bool


@dataclass(frozen=True, slots=True)
class Logind:
    """The setting and the file that has it; "" if it is systemd's default."""

    running: bool
    remove_ipc: bool = True
    source: str = ""
    users: tuple[User, ...] = ()


def observe(uids: Iterable[int], root: Path = Path("/")) -> Logind:
    """Read the settings, and the facts about these users."""
    if not (root / "run/systemd/system").is_dir():
        return Logind(running=False)
    remove_ipc, source = True, ""
    for file in _files(root):
        for value in _assigned(read(file) or ""):
            remove_ipc, source = value, f"/{file.relative_to(root)}"
    highest = _sys_uid_max(read(root / "etc/login.defs") or "")
    users = tuple(_user(uid, uid <= highest, root) for uid in sorted(set(uids)))
    return Logind(running=True, remove_ipc=remove_ipc, source=source, users=users)


def _files(root: Path) -> list[Path]:
    mains = [root / folder / "logind.conf" for folder in _FOLDERS]
    files = [file for file in mains if file.exists()][:1]
    drop_ins: dict[str, Path] = {}
    for folder in _FOLDERS:
        for file in (root / folder / "logind.conf.d").glob("*.conf"):
            drop_ins.setdefault(file.name, file)
    return files + [file for _, file in sorted(drop_ins.items())]


def _assigned(text: str) -> list[bool]:
    """Return the values of RemoveIPC in the section [Login], in order. Values that are not booleans are skipped."""
    section, values = "", []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line
        key, equals, value = line.partition("=")
        if section == "[Login]" and equals and key.strip() == "RemoveIPC" and value.strip().lower() in _BOOLEANS:
            values.append(_BOOLEANS[value.strip().lower()])
    return values


def _sys_uid_max(text: str) -> int:
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[0] == "SYS_UID_MAX" and fields[1].isascii() and fields[1].isdigit():
            return int(fields[1])
    return _SYS_UID_MAX


def _user(uid: int, system: bool, root: Path) -> User:
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return User(name, system, (root / "var/lib/systemd/linger" / name).exists())


def judge(logind: Logind) -> CheckResult:
    """Judge whether a user loses segments by logging out."""
    wanted = "RemoveIPC=no, or lingering users"
    if not logind.running:
        return fine("logind", "systemd does not run here", wanted)
    setting = f"RemoveIPC={'yes' if logind.remove_ipc else 'no'} ({logind.source or 'the default'})"
    losing = [user.name for user in logind.users if not user.system and not user.lingering]
    if not logind.remove_ipc or not losing:
        return fine("logind", setting + (", which affects no user here" if logind.remove_ipc else ""), wanted)
    fix = f"loginctl enable-linger {shlex.join(losing)}"
    why = "systemd deletes the segments at the user's last logout; the workers open new ones"
    return CheckResult("logind", "advice", f"{setting} for {listed(losing)}", wanted, fix, why, tuple(losing))
