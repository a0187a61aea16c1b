"""Names: class names that are used twice, modules named by a gerund, imports past a package's face."""

from __future__ import annotations

from collections.abc import Iterable

from tests.house.reasons import GERUND_MODULES, SHARED_CLASS_NAMES
from tests.house.tree import faces, imports, modules, public_classes

#: nouns that end in "ing" and are no form of a verb here
_NOUNS = {"ping", "ring", "string"}


def is_gerund(stem: str) -> bool:
    """Whether the last word of a module's name is a gerund.

    >>> is_gerund("batch_watching"), is_gerund("ping"), is_gerund("settings")
    (True, False, False)
    """
    word = stem.rpartition("_")[2]
    return word.endswith("ing") and word not in _NOUNS


def gerund_modules() -> list[str]:
    """Modules named by a gerund, without those that have a reason."""
    return [m.name for m in modules() if is_gerund(m.stem) and m.name not in GERUND_MODULES]


def shared_class_names() -> dict[str, list[str]]:
    """Class names that several modules define, those with a reason included."""
    return {name: homes for name, homes in sorted(public_classes().items()) if len(homes) > 1}


def unexplained_class_names() -> list[str]:
    """Class names that several modules define without a reason in the list."""
    return [name for name in shared_class_names() if name not in SHARED_CLASS_NAMES]


def past_the_face() -> list[str]:
    """Imports from another package that name a module below its face.

    The face of a package is its `__init__`, and what the contract in pyproject.toml lists. Modules beside the packages
    are their own face.
    """
    listed = faces()
    packages = {m.package for m in modules()} - {"root"}
    found = []
    for module in modules():
        for line, name in imports(module):
            parts = name.split(".")
            if len(parts) < 3 or parts[1] not in packages or parts[1] == module.package or name in listed:
                continue
            found.append(f"{module.name}:{line} imports {name}")
    return found


def unused_reasons() -> list[str]:
    """Entries of the lists of exceptions that nothing needs any more."""
    names = {m.name for m in modules()}
    shared = shared_class_names()
    return [
        *_missing(GERUND_MODULES, names),
        *(f"class {name}" for name in SHARED_CLASS_NAMES if name not in shared),
    ]


def _missing(listed: Iterable[str], names: set[str]) -> list[str]:
    return [name for name in listed if name not in names]
