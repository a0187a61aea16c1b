"""The environment of processes that run the code of a bundle."""

from __future__ import annotations

import os


def code_environment(folder: str) -> dict[str, str]:
    """What lets processes that are started with it import from a folder first, and not from the current one. The
    process that starts them runs no code of the bundle."""
    path = os.environ.get("PYTHONPATH")
    return {
        "PYTHONPATH": folder if not path else f"{folder}{os.pathsep}{path}",
        "PYTHONSAFEPATH": "1",
        # root may write into the folder although it is read-only
        "PYTHONDONTWRITEBYTECODE": "1",
    }


__all__ = ["code_environment"]
