"""Names of a package that are imported on first use, so that importing one small module of it stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, homes: Mapping[str, str], *, importing: Callable[[], AbstractContextManager[None]] = nullcontext
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package. `homes` maps its modules to the names that each defines, separated
    by spaces. A type checker needs the same names below `if TYPE_CHECKING`; a test compares the two. `importing` is
    entered around each import: it can turn a missing package into an error that names the extra.

    >>> get, _ = lazy_exports("mainstay.batch", {".parameter_grid": "grid"})
    >>> get("grid").__name__
    'grid'
    >>> get("tent")
    Traceback (most recent call last):
    AttributeError: module 'mainstay.batch' has no attribute 'tent'
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def get(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with importing():
            value = getattr(import_module(home, package), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return get, names


__all__ = ["lazy_exports"]
