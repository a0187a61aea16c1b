"""Kinds of job: what each kind adds to the worker, the command line, the API and the dashboard.

Layer: near the bottom, below control. Everything above finds the installed kinds here and names none itself. A kind is
declared in one object, a `Kind`, which another distribution can provide through the entry point group
`mainstay.kinds`:

    [project.entry-points."mainstay.kinds"]
    survey = "surveys.kind:KIND"

The parts of a kind are named as "module:attribute" and imported on first use, so that `mainstay --help` and a worker
import only what they need, and the extras of a kind stay optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from .errors import InvalidInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "mainstay.kinds"
DEFAULT = "task"

#: our own kinds, also entry points of this distribution; listed here so that a start does not search all packages
_OURS = {
    "task": "mainstay.task.kind:KIND",
    "batch": "mainstay.batch.kind:KIND",
    "load": "mainstay.load.kind:KIND",
    "node": "mainstay.node.kind:KIND",
}
#: what layers above the kinds add to the server
_ABOVE = ("mainstay.cluster.web.parts:PARTS",)
_registered: dict[str, Kind] = {}


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command of the command line. Its module has a function `register(app: typer.Typer)`."""

    name: str
    module: str
    help: str
    """the line in `mainstay --help`, which is shown without importing the module"""


class NavigationEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A link at the top of every dashboard page."""

    path: str
    title: str
    key: str
    """`g` and this letter open the page"""


class ServerParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a package adds to the server. Each part that is given as "module:attribute" is imported on first use."""

    name: str
    """the names of its templates begin with it: batch/batches.html"""
    needs: str = ""
    """`cluster`: its pages are in the navigation of servers of a cluster only"""
    operations: str = ""
    """operations of the API: a sequence of `web.api.operation.Operation`"""
    streams: str = ""
    """the same for live streams, whose paths come before those of other operations"""
    pages: str = ""
    """pages of the dashboard: a mapping of path to `web.dashboard.page.Handler`"""
    navigation: tuple[NavigationEntry, ...] = ()
    templates: str = ""
    """the package whose folder `templates` has its templates"""
    assets: Mapping[str, str] = {}
    """files for browsers: path below `/static/` -> "package:file name\""""


class Kind(ServerParts, frozen=True, kw_only=True):
    """The parts of one kind of job. Every part except the name is optional; a part that is given as
    "module:attribute" is imported on first use.

    The name is the kind in the rows of its jobs.

    >>> Kind(name="survey", operations="surveys.web:OPERATIONS").has_units
    False
    """

    has_units: bool = False
    """its jobs have units: jobs of their own below them"""
    queue: str = ""
    """the reserved queue that all its jobs stand in; empty: users choose"""

    declarations: str = ""
    """makes the kind's part of an app: `(worker.declarations.Host) -> worker.declarations.Declarations`"""
    lead: str = ""
    """makes the handler of its jobs in the queue `model.LEAD_QUEUE`, which managers lead:
    `(worker.LeadHost) -> worker.Work`"""
    advice: str = ""
    """advice about a settled job: `(Job) -> list[control.explain.Advice]`; replaces the general advice"""
    unit_advice: str = ""
    """the same about a settled unit"""
    obstacles: str = ""
    """what an unsettled job or unit waits for, if no worker claims it:
    `(JobStore, Job) -> Awaitable[list[control.explain.Obstacle] | None]`. None: workers claim it"""
    cores: str = ""
    """reads the cores of nodes that its jobs hold and wait for: `(JobStore) -> control.CoreReader`"""
    bundles: str = ""
    """reads the bundles that its jobs still need: `(JobStore) -> Awaitable[Mapping[str, str]]`, with a reason such as
    `job 018... needs it` by digest. They are not removed"""

    commands: tuple[Command, ...] = ()
    job_commands: tuple[str, ...] = ()
    """modules that add commands to `mainstay jobs`, each with a function `register(group: typer.Typer)`"""
    submission: str = ""
    """makes the jobs of `mainstay submit NAME`: `(App, name, options) -> task.cli.submission.Maker`"""

    masked_value: str = ""
    """masks a value of a job further: `(field name, value, Masker) -> value`"""

    job_page: str = ""
    """the path of the page of one job, with `{id}`, shown instead of the page that every job has"""
    panels: str = ""
    """panels on the page of a job: a sequence of `web.dashboard.job.PanelMaker`"""
    actions: str = ""
    """the actions that an operator may apply to a job: `(Job, State | None, Can) -> Can`"""
    dialogs: str = ""
    """a template with the dialogs of the kind's own actions; the job is `job`"""


def register_kind(kind: Kind) -> None:
    """Add a kind to this process, for a program that declares its own. Commands and servers that do not import the
    program find only kinds with an entry point."""
    if is_kind(kind.name) and _registered.get(kind.name) != kind:
        raise InvalidInput("kind", f"a kind {kind.name!r} exists already; choose another name")
    _registered[kind.name] = kind


def kind_named(name: str) -> Kind | None:
    """The kind of that name; None if no installed distribution provides it. Raises `InvalidInput` if it cannot be
    loaded."""
    if (target := _OURS.get(name)) is not None:
        return _own(target)
    if (registered := _registered.get(name)) is not None:
        return registered
    entry = _others().get(name)
    return None if entry is None else _loaded(entry)


def kinds() -> list[Kind]:
    """Every installed kind, our own first. A kind that cannot be loaded is logged and left out."""
    installed = [*(_own(target) for target in _OURS.values()), *_registered.values()]
    for entry in _others().values():
        try:
            installed.append(_loaded(entry))
        except InvalidInput as error:
            import logging  # noqa: PLC0415 - most commands start without it

            logging.getLogger("mainstay.kinds").warning("%s", error)
    return installed


def server_parts() -> list[ServerParts]:
    """What packages add to the server: the installed kinds, and the cluster."""
    return [*kinds(), *(_above(target) for target in _ABOVE)]


def kind_names() -> list[str]:
    """The names of the installed kinds; imports none of them."""
    return [*_OURS, *_registered, *_others()]


def own_kind_names() -> list[str]:
    """The names of the kinds of this distribution, which every app has."""
    return list(_OURS)


def is_kind(name: str) -> bool:
    """Whether a kind of that name is installed.

    >>> is_kind("task"), is_kind("survey")
    (True, False)
    """
    return name in _OURS or name in _registered or name in _others()


def part(target: str) -> Any:
    """Import the object that "module:attribute" names.

    >>> part("mainstay.kinds:GROUP")
    'mainstay.kinds'
    """
    module, _, path = target.partition(":")
    value: Any = import_module(module)
    for name in path.split("."):
        value = getattr(value, name)
    return value


@cache
def _own(target: str) -> Kind:
    kind: Kind = part(target)
    return kind


@cache
def _above(target: str) -> ServerParts:
    parts: ServerParts = part(target)
    return parts


@cache
def _others() -> dict[str, EntryPoint]:
    """The entry points of other distributions."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - a start that needs only our own kinds goes without it

    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in _OURS}


@cache
def _loaded(entry: EntryPoint) -> Kind:
    try:
        kind = entry.load()
    except Exception as error:
        raise InvalidInput("kind", f"the kind {entry.name!r} ({entry.value}) cannot be loaded: {error}") from error
    if not isinstance(kind, Kind) or kind.name != entry.name:
        raise InvalidInput("kind", f"{entry.value} must be a mainstay.kinds.Kind with the name {entry.name!r}")
    return kind


__all__ = [
    "DEFAULT",
    "GROUP",
    "Command",
    "Kind",
    "NavigationEntry",
    "ServerParts",
    "is_kind",
    "kind_named",
    "kind_names",
    "kinds",
    "own_kind_names",
    "part",
    "register_kind",
    "server_parts",
]
