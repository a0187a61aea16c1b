"""Which jobs are meant: the filters that `list`, `watch` and the bulk commands share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
import typer

from ..control.filtering import by_age, check_states
from ..model import check_id
from ..stores import JobStore, Query
from . import completion
from .ids import full_id

_PANEL = "Which jobs"

_OPTIONS: dict[str, Any] = {
    "status": Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            help="In this state, or in one of several (a,b).",
            show_default=False,
            autocompletion=completion.states,
            rich_help_panel=_PANEL,
        ),
    ],
    "queue": Annotated[
        str | None,
        typer.Option(
            "--queue",
            "-q",
            help="In this queue.",
            show_default=False,
            autocompletion=completion.queues,
            rich_help_panel=_PANEL,
        ),
    ],
    "name": Annotated[
        str | None,
        typer.Option("--name", "--task", "-n", help="Of this name.", show_default=False, rich_help_panel=_PANEL),
    ],
    "tag": Annotated[
        str | None, typer.Option("--tag", "-t", help="With this tag.", show_default=False, rich_help_panel=_PANEL)
    ],
    "text": Annotated[
        str | None,
        typer.Option(
            "--text",
            help="With this in its id, name, reason or last error.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ],
    "group": Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="ID",
            help="Members of the group whose callback this is.",
            show_default=False,
            autocompletion=completion.jobs,
            rich_help_panel=_PANEL,
        ),
    ],
    "older_than": Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Submitted longer ago than this (2h).",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ],
    "newer_than": Annotated[
        str | None,
        typer.Option(
            "--newer-than",
            metavar="AGE",
            help="Submitted within this time (15m).",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ],
}


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """As given on the command line; they narrow together."""

    status: list[str] | None = None
    queue: str | None = None
    name: str | None = None
    tag: str | None = None
    text: str | None = None
    group: str | None = None
    older_than: str | None = None
    newer_than: str | None = None

    OPTIONS: ClassVar[Mapping[str, Any]] = _OPTIONS

    @classmethod
    def given(cls, _: typer.Context, values: Mapping[str, Any]) -> Filters:
        """From what was given on the command line."""
        return cls(**values)

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return any(getattr(self, field) for field in self.__struct_fields__)

    @property
    def statuses(self) -> tuple[str, ...] | None:
        if not self.status:
            return None
        return tuple(word.strip() for words in self.status for word in words.split(","))

    async def query(self, store: JobStore) -> Query:
        """The same for a store; refuses what cannot be meant. Ages count from now."""
        await check_states(store, self.statuses or ())
        query = Query(
            status=self.statuses,
            queue=self.queue,
            name=self.name,
            tag=self.tag,
            text=self.text,
            group=None
            if self.group is None
            else check_id(await full_id(store, self.group, field="group"), field="group"),
        )
        return by_age(
            query,
            older_than=self.older_than,
            newer_than=self.newer_than,
            now_ms=store.clock.now_ms(),
            fields=("older-than", "newer-than"),
        )
