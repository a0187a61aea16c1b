"""The paths of outputs: known before anything runs, and readable by people.

    v1/<study>/<2 hex>/<parameters>-s<seed>-<20 hex>/<file>       an output
    v1/<study>/<2 hex>/<parameters>-s<seed>-<20 hex>/_entry-...   the record of what was published, see `entry`
    v1/_manifests/<job>.json.gz                                   the expected outputs of a job

The digits are the beginning of the unit's address; the first two spread a study over 256 folders, each of which is
listed with one request. An older layout is read, and moved by `migrate`:

    <study>/<64 hex>/<file>          v0: without checksums
    <study>/<64 hex>/unit.json       study, code, params and seed, written first
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..errors import InvalidInput
from ..storage import check_key
from .address import Unit, slug

LAYOUT_VERSION = "v1"
MANIFESTS = f"{LAYOUT_VERSION}/_manifests"
LEGACY_UNIT = "unit.json"
#: digits of the address at the end of a unit's folder
DIGITS = 20
_VERSION = re.compile(r"v\d+")
_LEGACY = re.compile(r"[^/]+/[0-9a-f]{64}")
_LONGEST_NAME = 100


def study_folder(study: str) -> str:
    """Studies whose names differ only in characters that a path cannot hold share a folder; their units differ."""
    return f"{LAYOUT_VERSION}/{slug(study)}"


def unit_folder(unit: Unit) -> str:
    """
    >>> unit_folder(Unit("sir", "2024-10", {"beta": 0.3}, 7))
    'v1/sir/00/beta=0.3-s7-0031487644ee09543977'
    """
    address = unit.address
    return f"{LAYOUT_VERSION}/{slug(unit.study)}/{address[:2]}/{unit.readable}-{address[:DIGITS]}"


def output_path(unit: Unit, file: str) -> str:
    """The path of an output."""
    return f"{unit_folder(unit)}/{check_file(file)}"


def manifest_path(job_id: str) -> str:
    return check_key(f"{MANIFESTS}/{job_id}.json.gz", field="job")


def legacy_folder(unit: Unit) -> str:
    return f"{slug(unit.study)}/{unit.address}"


def is_legacy_study(name: str) -> bool:
    """Whether a folder at the top may be a study of layout v0."""
    return not name.startswith((".", "_")) and not _VERSION.fullmatch(name)


def is_legacy_unit(folder: str) -> bool:
    return _LEGACY.fullmatch(folder) is not None


def check_file(name: str) -> str:
    """Return a file's name; refuse one that some storage could not hold, and one that is reserved."""
    if "/" in check_key(name, field="output"):
        raise InvalidInput("output", f"{name!r} has a folder in it; name a file")
    if name.startswith("_") or len(name) > _LONGEST_NAME:
        rule = (
            "begins with _, which is reserved for Mainstay"
            if name.startswith("_")
            else f"has over {_LONGEST_NAME} characters"
        )
        raise InvalidInput("output", f"{name!r} {rule}; choose another name")
    return name


def files_of(outputs: Mapping[str, str] | Iterable[str]) -> dict[str, str]:
    """Output -> its file. Without a mapping, the names of the outputs are those of the files.

    >>> files_of({"result": "result.npy"}), files_of(["result.npy"])
    ({'result': 'result.npy'}, {'result.npy': 'result.npy'})
    """
    if isinstance(outputs, str):
        raise InvalidInput("outputs", f"{outputs!r} is one text; give a list of names, or names with their files")
    files = dict(outputs) if isinstance(outputs, Mapping) else {name: name for name in outputs}
    for file in files.values():
        check_file(file)
    if not files:
        raise InvalidInput("outputs", "there is none; name at least one")
    # some file systems do not tell A from a
    if len({file.lower() for file in files.values()}) < len(files):
        raise InvalidInput("outputs", f"two of them have the same file: {', '.join(sorted(files.values()))}")
    return files
