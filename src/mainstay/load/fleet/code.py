"""The code of a load test as it travels to the nodes: its file or modules, what they import, and the data they read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import NamedTuple

from ...bundles import Bundle, BundleLimits, collect_code, installed_digest
from ...errors import InvalidInput
from ..feeders import Feed
from ..planned_run import PlannedRun
from ..prepared import File
from ..sources import Source, bundled_source
from .demand import FleetDemand

_INSTALLED = frozenset({"site-packages", "dist-packages"})


class LoadCode(NamedTuple):
    """What nodes need to load a test."""

    source: Source
    """its paths are below the folder of the bundle"""
    bundle: Bundle | None
    """None: its modules are installed, and so they have to be on the nodes"""
    modules: dict[str, str]
    """without a bundle: the digests of its top-level modules as they are installed here"""
    notes: list[str]
    """what nodes must have besides"""


def sends_code(planned: PlannedRun, demand: FleetDemand) -> bool:
    """Whether the code of a test has to be sent, because its modules are not those of an installed package."""
    return bool(_entries(planned, demand)[1])


def load_code(planned: PlannedRun, demand: FleetDemand, limits: BundleLimits | None = None) -> LoadCode:
    """Collect the code of a planned test. Nothing is sent, and nothing more is imported."""
    source = planned.test.source
    root, entries = _entries(planned, demand)
    if not entries:
        if demand.include or demand.data:
            raise InvalidInput("data", "this test is installed, so nothing is sent with it; install its data as well")
        tops = sorted({place.partition(":")[0].partition(".")[0] for place in source.classes.values()})
        return LoadCode(bundled_source(source, root), None, {top: installed_digest(top) for top in tops}, [])
    files, notes = _files_read(planned, root)
    bundle = collect_code(
        entries, root, demand.include, data=[*(_place(root, each) for each in demand.data), *files], limits=limits
    )
    _check_certificates(planned, bundle)
    return LoadCode(bundled_source(source, root), bundle, {}, notes)


def _entries(planned: PlannedRun, demand: FleetDemand) -> tuple[Path, list[str]]:
    """The folder that is sent, and the file or the modules to begin with."""
    source = planned.test.source
    return _of_file(source, demand.root) if source.file else _of_modules(source, demand.root)


def _of_file(source: Source, root: str) -> tuple[Path, list[str]]:
    file, here = Path(source.file).resolve(), Path.cwd()
    folder = Path(root).resolve() if root else here if file.is_relative_to(here) else file.parent
    if not file.is_relative_to(folder):
        raise InvalidInput("root", f"{file} is not below {folder}; give a folder that contains it")
    return folder, [file.relative_to(folder).as_posix()]


def _of_modules(source: Source, root: str) -> tuple[Path, list[str]]:
    """The folder that the modules of the classes are imported from, and those that are not installed."""
    roots: dict[Path, list[str]] = {}
    for module in sorted({place.partition(":")[0] for place in source.classes.values()}):
        path = getattr(sys.modules.get(module), "__file__", None)
        if path is None:
            raise InvalidInput("load", f"module {module} has no file; define the workflows in a module with one")
        file = Path(path).resolve()
        # one level for each part of the name, and one more for the file of a package
        folder = file.parents[module.count(".") + (file.name == "__init__.py")]
        if _INSTALLED.isdisjoint(folder.parts):
            roots.setdefault(folder, []).append(module)
    if root and roots and [Path(root).resolve()] != list(roots):
        found = ", ".join(str(each) for each in roots)
        raise InvalidInput("root", f"the workflows are imported from {found}, not from {root}; leave it out")
    if len(roots) > 1:
        found = " and ".join(str(each) for each in sorted(roots))
        raise InvalidInput("load", f"the workflows are imported from {found}; move them below one folder")
    return next(iter(roots.items()), (Path.cwd(), []))


def _files_read(planned: PlannedRun, root: Path) -> tuple[list[str], list[str]]:
    """The files that the test reads by name: those below the root, and notes about the others."""
    found: dict[str, None] = {}
    notes: dict[str, None] = {}
    for field, path in _named_files(planned):
        here = Path.cwd() / path
        if not path.is_absolute() and here.resolve() != (root / path).resolve():
            rule = f"{path} is read from the current folder {Path.cwd()}, and nodes read it from {root}"
            raise InvalidInput(field, f"{rule}. Run this in {root}, or write Path(__file__).parent / {path.name!r}")
        if here.resolve().is_relative_to(root):
            found[str(here.resolve())] = None
        else:
            notes[f"{field}: {path} is not below {root} and is not sent; every node needs it at the same path"] = None
    return list(found), list(notes)


def _named_files(planned: PlannedRun) -> Iterator[tuple[str, Path]]:
    for name, blueprint in planned.blueprints.items():
        feed = blueprint.workflow.data
        if isinstance(feed, Feed) and feed.path is not None:
            yield f"{name}.data", feed.path
        for step in blueprint.steps.values():
            for argument, value in step.prepared.items():
                if isinstance(value, File):
                    yield f"{name}.{step.name}.{argument}", value.path


def _place(root: Path, given: str) -> str:
    """A data file as people name it: from the current folder, or from the root."""
    return str(Path(given).absolute()) if Path(given).exists() else str(root / given)


def _check_certificates(planned: PlannedRun, bundle: Bundle) -> None:
    """Certificates and keys are not sent unless they were named: a key must not travel by accident."""
    sent = {file.path for file in bundle.manifest.files}
    for field in ("ca", "cert", "key"):
        path = getattr(planned.options, field)
        if path is not None and not Path(path).is_absolute() and PurePath(path).as_posix() not in sent:
            rule = f"{path} is read on the nodes; give a path that every node has, from /"
            raise InvalidInput(field, f"{rule}, or send the file as data")


__all__ = ["LoadCode", "load_code", "sends_code"]
