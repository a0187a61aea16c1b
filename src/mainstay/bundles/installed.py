"""The digest of an installed program, for nodes that have the code already."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from ..errors import InvalidInput
from .manifest import EXCLUDED
from .packed import file_digest


def installed_digest(target: str) -> str:
    """The digest of the top-level package (or single module) that `module:app` belongs to: 64 hexadecimal digits.

    Two machines have the same version if the digests are equal. All files of the package count, data included, except
    those that Python writes itself. The package is found as an import would find it, and is not imported.

    >>> installed_digest("json.decoder:JSONDecoder") == installed_digest("json")
    True
    """
    module = target.strip().partition(":")[0]
    top = module.partition(".")[0]
    spec = _spec(top) if top else None
    if spec is None:
        raise InvalidInput(
            "target",
            f"there is no module {top!r} on this machine (of {target!r}); install it, or run this from its folder",
        )
    if spec.submodule_search_locations is not None:
        folders = [Path(place) for place in spec.submodule_search_locations]
        files = [one for folder in folders for one in _files(folder)]
    elif spec.has_location and spec.origin:
        files = [(Path(spec.origin).name, Path(spec.origin))]
    else:
        raise InvalidInput("target", f"{top!r} is part of Python and has no files to compare; name your own module")
    hashed = hashlib.sha256(b"mainstay installed 1\n")
    for path, file in sorted(files):
        size, digest = file_digest(file)
        hashed.update(f"{digest} {size} {path}\n".encode(errors="surrogateescape"))
    return hashed.hexdigest()


def _spec(top: str) -> ModuleSpec | None:
    """Where an engine would import a top-level module from: the current folder first, like `python -m`."""
    here = None if sys.flags.safe_path else PathFinder.find_spec(top, [os.getcwd()])
    if here is not None and here.loader is not None:
        return here
    try:
        # a folder without `__init__.py` counts only if nothing else has the name
        return importlib.util.find_spec(top) or here
    except (ImportError, ValueError):
        return here


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for place, below, names in os.walk(folder):
        below[:] = [name for name in below if name not in EXCLUDED]
        for name in names:
            file = Path(place, name)
            if file.suffix != ".pyc" and file.is_file():
                yield file.relative_to(folder).as_posix(), file


__all__ = ["installed_digest"]
