"""The study that a command names: a module or a file, the app in it, and one of its batches."""

from __future__ import annotations

import difflib
import shlex
import sys
from pathlib import Path

import msgspec

from ...cli import Where, load_app
from ...errors import InvalidInput
from ...worker import find_target
from .. import Batch, BatchMethods


class StudyTarget(msgspec.Struct, frozen=True):
    """A study and its app."""

    app: BatchMethods
    target: str
    """the app as `module:app`"""
    study: Batch
    folder: str = ""
    """the import folder of the module, if a file was named"""

    @property
    def where(self) -> Where:
        """The app as the options of a command."""
        return Where(app=self.target, typed=frozenset({"app"}))

    @property
    def worker_command(self) -> str:
        """The command that starts a worker for the app."""
        return f"mainstay worker {shlex.quote(self.target)}"


def study_target(target: str, wanted: str | None) -> StudyTarget:
    """Load `module:app` or a file, and choose a study: by name, or the only one."""
    folder = ""
    if _is_file(target):
        target, folder = _from_file(target)
    app = load_app(target)
    if not isinstance(app, BatchMethods):
        raise InvalidInput("app", f"{target} is of type {type(app).__name__}, not an App; it has no batches")
    return StudyTarget(app, target, _study(app, target, wanted), folder)


def _is_file(target: str) -> bool:
    name = target.partition(":")[0]
    return name.endswith(".py") or "/" in name or not target.partition(":")[2]


def _from_file(given: str) -> tuple[str, str]:
    """`module:app` and its import folder: the folder of the file, or of its outermost package."""
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
    """The name of the only app in a module."""
    # imports the module, with our messages if that fails
    find_target(f"{module}:__dict__", lambda _: True)
    apps = {
        id(value): name
        for name, value in reversed(vars(sys.modules[module]).items())
        if isinstance(value, BatchMethods)
    }
    if len(apps) == 1:
        return next(iter(apps.values()))
    problem = f"has several apps; name one: {module}:{min(apps.values())}" if apps else "has no App in it"
    raise InvalidInput("study", f"module {module} {problem}")


def _study(app: BatchMethods, target: str, wanted: str | None) -> Batch:
    batches = app.batches
    names = ", ".join(batches)
    if not batches:
        raise InvalidInput("study", f"{target} declares no batch; write @app.batch(outputs=...) on a function")
    if wanted is None:
        if len(batches) > 1:
            raise InvalidInput("study", f"{target} has several batches; name one: {names}")
        return next(iter(batches.values()))
    fitting = [name for name in batches if name == wanted] or [
        name for name in batches if name.rpartition(".")[2] == wanted
    ]
    if len(fitting) != 1:
        close = difflib.get_close_matches(wanted, batches, n=1)
        hint = f"did you mean {close[0]}?" if close else f"it has {names}"
        raise InvalidInput("study", f"{target} has no batch {wanted!r}; {hint}")
    return batches[fitting[0]]
