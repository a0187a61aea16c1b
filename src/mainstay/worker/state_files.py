"""Where a program keeps files that must outlive it and belong to no store."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder(part: str, *, root: Path | None = None) -> Path:
    """A folder that only this user can read: in `root` if it is given, in MAINSTAY_STATE if that is set, else where the
    platform keeps such files. Created if missing."""
    given = root or os.environ.get("MAINSTAY_STATE")
    if given:
        home = Path(given)
    else:
        state = os.environ.get("XDG_STATE_HOME")
        home = (Path(state) if state else Path.home() / ".local" / "state") / "mainstay"
    folder = home / part
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.resolve()
