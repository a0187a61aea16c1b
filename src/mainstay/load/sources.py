"""A load test: its workflows, and how another process finds them."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..errors import InvalidInput, MainstayError
from .plan import LoadOptions
from .workflow import Workflow

_loaded: dict[str, ModuleType] = {}
"""by path: a file is loaded once, so that its classes stay the same"""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """How a process finds the classes of a test."""

    file: str = ""
    """all workflows that are defined in it"""
    classes: dict[str, str] = {}
    """or: by name, module and qualified name"""
    folder: str = ""
    """where the modules are found"""
    on_node: bool = False
    """whether the files came to this machine with a bundle, or are installed on it: see `relocated`"""


class LoadTest:
    """Workflows that run together. Made from a file by `load_file`, or from classes."""

    def __init__(self, name: str, workflows: Iterable[type[Workflow]], *, source: Source | None = None) -> None:
        classes = list(workflows)
        for one in classes:
            if not (isinstance(one, type) and issubclass(one, Workflow)) or one is Workflow:
                raise InvalidInput(name, f"{one!r} is not a workflow; derive a class from Workflow")
        if not classes:
            raise InvalidInput(name, "has no workflows; derive a class from Workflow and give it a @step")
        self.name = name
        self.workflows: Mapping[str, type[Workflow]] = {one.__name__: one for one in classes}
        if len(self.workflows) < len(classes):
            names = [one.__name__ for one in classes]
            twice = next(one for one in names if names.count(one) > 1)
            raise InvalidInput(name, f"two of its workflows are called {twice}; rename one of them")
        self.source = source or _by_module(name, classes)

    def job(self, **options: Any) -> LoadJob:
        """A run for a schedule, with values that override the classes: `shop.job(vus=500, duration="10m")`. The options
        are those of `LoadOptions`."""
        known = LoadOptions.__struct_fields__
        for name in options:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known options: {', '.join(known)}"
                raise InvalidInput(f"{self.name}.{name}", f"unknown option of a load test; {hint}")
        try:
            return LoadJob(self, msgspec.convert(options, LoadOptions))
        except msgspec.ValidationError as error:
            raise InvalidInput(self.name, str(error)) from None

    def __repr__(self) -> str:
        return f"<LoadTest {self.name}: {', '.join(self.workflows)}>"


class LoadJob(NamedTuple):
    """A run of a load test, not submitted yet. For `app.schedule`."""

    test: LoadTest
    options: LoadOptions


def load_file(path: str | Path) -> LoadTest:
    """The load test of the workflows that a file defines itself, without imported ones."""
    file = Path(path).absolute()
    module = _module(file)
    own = [
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Workflow) and one.__module__ == module.__name__
    ]
    # a class without steps is a base for others
    workflows = [one for one in dict.fromkeys(own) if one.__graph__.after]
    if not workflows:
        problem = "has only workflows without steps" if own else "defines no workflow"
        raise InvalidInput("file", f"{path} {problem}; derive a class from mainstay.load.Workflow and give it a @step")
    return LoadTest(file.stem, workflows, source=Source(file=str(file), folder=str(file.parent)))


def bundled_source(source: Source, root: str | Path) -> Source:
    """The source as it travels with a bundle of the files below `root`: without places of this machine. Raises
    `InvalidInput` for a file that is elsewhere.

    >>> bundled_source(Source(file="/home/ann/shop/load/test.py", folder="/home/ann/shop/load"), "/home/ann/shop").file
    'load/test.py'
    """
    if not source.file:
        return replace(source, folder="")
    file, folder = Path(source.file).absolute(), Path(root).absolute()
    if not file.is_relative_to(folder):
        # a link may lead to either
        file, folder = file.resolve(), folder.resolve()
    if not file.is_relative_to(folder):
        rule = f"{source.file} is not below {root}, the root of the bundle; nodes would not have it. Give another root"
        raise InvalidInput("file", rule)
    return replace(source, file=file.relative_to(folder).as_posix(), folder="")


def relocated(source: Source, folder: str | Path = "") -> Source:
    """The source of a test on the node that runs it: in the folder of the bundle that it came with. Without a folder
    the node finds its modules installed.

    >>> relocated(Source(file="load/test.py"), "/cache/5e1f").file
    '/cache/5e1f/load/test.py'
    """
    file = PurePosixPath(source.file)
    if source.file and (not folder or file.is_absolute() or ".." in file.parts):
        raise InvalidInput(
            "file", f"{source.file} is not a file of a bundle; submit the test with a bundle that has it"
        )
    return replace(source, file=str(Path(folder, file)) if source.file else "", folder=str(folder), on_node=True)


def found_in(source: Source, name: str) -> LoadTest:
    """The test that another process described."""
    try:
        return _found_in(source, name)
    except (ModuleNotFoundError, InvalidInput) as error:
        missing = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        if source.on_node and isinstance(missing, ModuleNotFoundError):
            rule = f"module {missing.name!r}{_importer(missing)} is neither in the bundle nor installed on this node"
            raise InvalidInput("test", f"{rule}; include it in the bundle, or install it on the nodes") from error
        raise


def _importer(error: ModuleNotFoundError) -> str:
    """Where the missing module is imported."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    if not frames or frames[-1].filename == __file__:
        return ""
    return f" (imported by {Path(frames[-1].filename).name}, line {frames[-1].lineno})"


def _found_in(source: Source, name: str) -> LoadTest:
    if source.file:
        test = load_file(source.file)
        return LoadTest(name, test.workflows.values(), source=source)
    _look_in(source.folder)
    classes = []
    for one, place in source.classes.items():
        module, _, path = place.partition(":")
        value: Any = importlib.import_module(module)
        for part in path.split("."):
            value = getattr(value, part, None)
        if not isinstance(value, type):
            raise InvalidInput(one, f"generator processes do not find it at {place}; define it in a module")
        classes.append(value)
    return LoadTest(name, classes, source=source)


def _by_module(name: str, workflows: Iterable[type[Workflow]]) -> Source:
    classes = {}
    for one in workflows:
        if one.__module__ == "__main__" or "<locals>" in one.__qualname__:
            raise InvalidInput(
                name,
                f"{one.__name__} is defined in {'a function' if '<' in one.__qualname__ else 'the main program'}, and "
                "generator processes cannot find it; define it in a module",
            )
        classes[one.__name__] = f"{one.__module__}:{one.__qualname__}"
    return Source(classes=classes, folder=os.getcwd())


def _module(file: Path) -> ModuleType:
    known = _loaded.get(str(file))
    if known is not None:
        return known
    if not file.is_file():
        raise InvalidInput("file", f"{file} does not exist{_alike(file)}")
    _look_in(str(file.parent))
    name = f"mainstay_load_{file.stem}_{len(_loaded)}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InvalidInput("file", f"{file} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    # annotations that are strings are resolved in this module
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except MainstayError as error:
        del sys.modules[name]
        raise InvalidInput("file", f"{file.name}{_line(error, file)}: {error}") from None
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise InvalidInput("file", f"{file.name}{_line(error, file)} cannot be loaded: {reason}") from error
    _loaded[str(file)] = module
    return module


def _line(error: BaseException, file: Path) -> str:
    if isinstance(error, SyntaxError) and error.lineno:
        return f", line {error.lineno}"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f", line {own[-1].lineno}" if own else ""


def _alike(file: Path) -> str:
    with contextlib.suppress(OSError):
        names = [one.name for one in file.parent.glob("*.py")]
        if close := difflib.get_close_matches(file.name, names, n=1):
            return f"; did you mean {close[0]}?"
    return ""


def _look_in(folder: str) -> None:
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)
