"""From a program on this machine to a bundle."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from ..errors import InvalidInput
from .imports import ImportGraph
from .manifest import (
    EXCLUDED,
    PART_BYTES,
    BundleFile,
    BundleLimits,
    BundleManifest,
    check_bundle_path,
    check_bundle_size,
    check_bundle_target,
)

#: folders that hold installed packages
_INSTALLED = frozenset({"site-packages", "dist-packages", "node_modules"})


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """A program that can be published: its manifest, and the folder its files are read from."""

    manifest: BundleManifest
    root: Path

    @property
    def digest(self) -> str:
        return self.manifest.digest


def collect_bundle(
    target: str,
    root: str | Path,
    include: Sequence[str] = (),
    *,
    data: Sequence[str] = (),
    limits: BundleLimits | None = None,
) -> Bundle:
    """Collect the code of a program: a module and everything it imports from below the root.

    `target` is `module:app`, or a file below the root with or without `:app`. `include` are patterns of other files
    below the root (`templates/*.html`, `plugins/**`): Python files among them bring their imports, so they are the way
    to add modules that are imported by a computed name. `data` are files and folders below the root whose content is
    not looked at. The name of the bundle is that of the top-level package. Nothing is imported or run.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for name, text in {"shop.py": "import prices", "prices.py": "", "other.py": "", "rates.csv": "1"}.items():
    ...         _ = Path(root, name).write_text(text)
    ...     bundle = collect_bundle("shop:app", root, ["*.csv"])
    >>> [file.path for file in bundle.manifest.files], bundle.digest[:16]
    (['prices.py', 'rates.csv', 'shop.py'], 'ad595d4b04e45df2')
    """
    folder = _root_folder(root)
    target = _target_of(target, folder)
    module = target.partition(":")[0]
    graph = ImportGraph(folder)
    _check_present(graph, module, folder)
    given = _given_files(folder, include, data)
    code = graph.reach([module, *given.modules])
    return _bundle(module.partition(".")[0], target, folder, code.values(), given, limits)


def collect_code(
    entries: Sequence[str],
    root: str | Path,
    include: Sequence[str] = (),
    *,
    data: Sequence[str] = (),
    limits: BundleLimits | None = None,
) -> Bundle:
    """Collect code that has no app, such as a load test: files and modules, with everything they import from below the
    root. A node cannot run it as its program.

    An entry is a Python file by its path below the root, whatever its name is, or the name of a module. A file imports
    from its own folder and from the root. `include` and `data` are those of `collect_bundle`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for name, text in {"shop-test.py": "import prices", "prices.py": "", "other.py": ""}.items():
    ...         _ = Path(root, name).write_text(text)
    ...     bundle = collect_code(["shop-test.py"], root)
    >>> [file.path for file in bundle.manifest.files], bundle.manifest.name, bundle.manifest.target
    (['prices.py', 'shop-test.py'], 'shop-test', '')
    """
    folder = _root_folder(root)
    graph = ImportGraph(folder)
    files = {path: _file_below(folder, path) for path in entries if path.endswith(".py")}
    modules = [entry for entry in entries if not entry.endswith(".py")]
    for module in modules:
        _check_present(graph, module, folder)
    given = _given_files(folder, include, data)
    code = list(graph.reach([*modules, *given.modules]).values())
    for file in files.values():
        imported = graph.imports_of(file)
        code += [file, *ImportGraph(file.parent).reach(imported).values(), *graph.reach(imported).values()]
    first = PurePosixPath(entries[0]).stem if entries[0].endswith(".py") else entries[0].partition(".")[0]
    return _bundle(_name_of(first), "", folder, code, given, limits)


class _GivenFiles(NamedTuple):
    """The files that were asked for beside those that are imported."""

    paths: dict[str, None]
    modules: list[str]
    """of the Python files among the included ones: they bring their imports"""


def _given_files(folder: Path, include: Sequence[str], data: Sequence[str]) -> _GivenFiles:
    paths = dict.fromkeys(path for pattern in include for path in _matching(folder, pattern))
    modules = [_module_of(path) for path in paths if path.endswith(".py")]
    return _GivenFiles(paths | dict.fromkeys(path for place in data for path in _data_files(folder, place)), modules)


def _bundle(
    name: str, target: str, folder: Path, code: Iterable[Path], given: _GivenFiles, limits: BundleLimits | None
) -> Bundle:
    of_code = {file.relative_to(folder).as_posix() for file in code}
    places = {path: _place(folder, path) for path in sorted(of_code | given.paths.keys())}
    sizes = [(path, file.stat().st_size, path not in of_code) for path, file in places.items()]
    # before they are read: there may be very much of them
    check_bundle_size(name, sizes, limits or BundleLimits())
    files = [_file(path, file, data=path not in of_code) for path, file in places.items()]
    return Bundle(manifest=BundleManifest(name=name, target=target, files=tuple(files)), root=folder)


def _root_folder(root: str | Path) -> Path:
    folder = Path(root).resolve()
    if not folder.is_dir():
        raise InvalidInput("root", f"{root} is not a folder; give the folder that the program is imported from")
    if installed := sorted(_INSTALLED & set(folder.parts)):
        raise InvalidInput(
            "root", f"{root} is in {installed[0]}: install packages on the nodes, and bundle your own code"
        )
    return folder


def _check_present(graph: ImportGraph, module: str, folder: Path) -> None:
    if graph.find(module) is None:
        raise InvalidInput(
            "target", f"there is no module {module!r} below {folder}; give its root, or correct the name"
        )


def _file_below(folder: Path, path: str) -> Path:
    inside = Path(os.path.normpath(folder / path))
    if not inside.is_relative_to(folder) or not inside.is_file():
        raise InvalidInput("file", f"there is no file {path} below {folder}; correct the path, or give another root")
    return inside


def _name_of(text: str) -> str:
    """A name for a bundle, as near to a text as the rules allow.

    >>> _name_of("löad test"), _name_of("-")
    ('l_ad_test', 'code')
    """
    return re.sub(r"[^A-Za-z0-9._-]", "_", text).lstrip(".-")[:100] or "code"


def _target_of(target: str, root: Path) -> str:
    place, _, app = target.strip().partition(":")
    if place.endswith(".py") or "/" in place:
        inside = Path(os.path.normpath(root / place))
        if not inside.is_relative_to(root):
            raise InvalidInput("target", f"{place!r} is not below the root {root}; give a root that contains it")
        place = _module_of(inside.relative_to(root).as_posix())
    return check_bundle_target(f"{place}:{app or 'app'}")


def _module_of(path: str) -> str:
    parts = PurePosixPath(path.removesuffix(".py")).parts
    return ".".join(parts[:-1] if parts[-1:] == ("__init__",) else parts)


def _place(root: Path, path: str) -> Path:
    """The file of a path, which may be a link within the root."""
    check_bundle_path(path)
    real = (root / path).resolve()
    if not real.is_relative_to(root):
        raise InvalidInput("bundle", f"{path} is a link to {real}, outside of {root}; copy the file below the root")
    return real


def _file(path: str, file: Path, *, data: bool) -> BundleFile:
    size, digest, parts = _digests(file)
    return BundleFile(path=path, size=size, sha256=digest, data=data, split=parts)


def _digests(file: Path) -> tuple[int, str, tuple[str, ...]]:
    """Size and digest of a file, and the digests of its parts if there are several."""
    whole, size = hashlib.sha256(), 0
    parts: list[str] = []
    with file.open("rb") as content:
        while piece := content.read(PART_BYTES):
            whole.update(piece)
            parts.append(hashlib.sha256(piece).hexdigest())
            size += len(piece)
    return size, whole.hexdigest(), tuple(parts) if len(parts) > 1 else ()


def _data_files(root: Path, place: str) -> Iterator[str]:
    """The files of a data file or folder, by its path in the root or on this machine."""
    path = Path(os.path.normpath(root / place))
    if not path.is_relative_to(root):  # perhaps it leads through a link to a folder below the root
        path = Path(os.path.realpath(path.parent), path.name)
    if not path.is_relative_to(root):
        raise InvalidInput("data", f"{place} is not below the root {root}; copy it there, or give another root")
    if path.is_file():
        return iter([path.relative_to(root).as_posix()])
    found = sorted((path / name).relative_to(root).as_posix() for name in _files(path)) if path.is_dir() else []
    if not found:
        raise InvalidInput("data", f"there is no file {place} below {root}, and no folder with files; correct the path")
    return iter(found)


def _matching(root: Path, pattern: str) -> Iterator[str]:
    """The files below the root that a pattern names, by path."""
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise InvalidInput("include", f"{pattern!r} leaves the root; give a pattern for files below {root}")
    rule = _rule(pattern)
    found = sorted(path for path in _files(root) if rule.fullmatch(path))
    if not found:
        raise InvalidInput("include", f"no file below {root} matches {pattern!r}; correct the pattern or leave it out")
    return iter(found)


def _files(root: Path) -> Iterator[str]:
    """All files below the root without those that never belong to a bundle. Linked folders are not entered: their
    files would be outside, or would come twice."""
    for folder, below, names in os.walk(root):
        below[:] = [
            name
            for name in below
            if name not in EXCLUDED | _INSTALLED and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
        ]
        begin = Path(folder).relative_to(root)
        for name in names:
            # a pipe or a device is not a file, and reading it may never end
            if name not in EXCLUDED and os.path.isfile(os.path.join(folder, name)):
                yield (begin / name).as_posix()


def _rule(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression: `*` and `?` within a part, `**` for any number of parts."""
    parts: list[str] = []
    for part in pattern.removeprefix("./").split("/"):
        if part == "**":
            parts.append("(?:[^/]+/)*")
        else:
            text = re.escape(part).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
            parts.append(f"{text}/")
    joined = "".join(parts)
    return re.compile(joined.removesuffix("/") if not joined.endswith(")*") else f"{joined}[^/]+", re.DOTALL)


__all__ = ["Bundle", "collect_bundle", "collect_code"]
