"""Which study a command means: a module or a file, the app in it, and one of its batches."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import msgspec

from ...cli.target import load
from ...errors import InvalidInput
from ...worker.app_import import find
from .. import Batch, BatchMethods


class Meant(msgspec.Struct, frozen=True):
    """What was meant."""

    app: BatchMethods
    target: str
    """as a worker is told: module:app"""
    study: Batch
    folder: str = ""
    """where Python finds the module, if it was named as a file"""


def meant(target: str, wanted: str | None) -> Meant:
    """From `module:app` or a file, and the name of a study if there are several."""
    folder = ""
    if _is_file(target):
        target, folder = _from_file(target)
    app = load(target)
    if not isinstance(app, BatchMethods):
        raise InvalidInput("app", f"{target} is of type {type(app).__name__}, not an App; it has no batches")
    return Meant(app, target, _study(app, target, wanted), folder)


def _is_file(target: str) -> bool:
    name = target.partition(":")[0]
    return name.endswith(".py") or "/" in name or not target.partition(":")[2]


def _from_file(given: str) -> tuple[str, str]:
    """`module:app` and the folder that Python is to look in: its own, or that around its package."""
    name, _, wanted = given.partition(":")
    path = Path(name if name.endswith(".py") else f"{name}.py").absolute()
    if not path.is_file():
        raise InvalidInput(
            "study", f"{name!r} is not a file; give a file like sir.py, or a module and its app: sir:app"
        )
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    module = ".".join(parts)
    return f"{module}:{wanted or _only_app(module)}", str(folder)


def _only_app(module: str) -> str:
    """The name of the app in a module that has one."""
    # imports it, with all that is said when that fails; what is in it is looked at afterwards
    find(f"{module}:__dict__", lambda _: True)
    found = {
        id(each): name for name, each in reversed(vars(sys.modules[module]).items()) if isinstance(each, BatchMethods)
    }
    if len(found) == 1:
        return next(iter(found.values()))
    told = f"has several apps; say which: {module}:{min(found.values())}" if found else "has no App in it"
    raise InvalidInput("study", f"module {module} {told}")


def _study(app: BatchMethods, target: str, wanted: str | None) -> Batch:
    batches = app.batches
    names = ", ".join(batches)
    if not batches:
        raise InvalidInput("study", f"{target} declares no batch; write @app.batch(outputs=...) on a function")
    if wanted is None:
        if len(batches) > 1:
            raise InvalidInput("study", f"{target} has several; say which: {names}")
        return next(iter(batches.values()))
    fitting = [name for name in batches if name == wanted] or [
        name for name in batches if name.rpartition(".")[2] == wanted
    ]
    if len(fitting) != 1:
        close = difflib.get_close_matches(wanted, batches, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there is {names}"
        raise InvalidInput("study", f"{target} has no batch {wanted!r}; {hint}")
    return batches[fitting[0]]
