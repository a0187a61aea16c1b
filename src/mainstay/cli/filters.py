"""The filters that `list`, `watch` and the bulk commands share."""

from __future__ import annotations

from typing import Annotated

from ..control import by_age, check_states
from ..model import check_id
from ..stores import JobStore, Query
from . import completion
from .ids import full_id
from .options import OptionGroup, panel

_panel = panel("Filters")


class Filters(OptionGroup, frozen=True, kw_only=True):
    """Filters of the command line. A job must match all of them."""

    status: Annotated[
        list[str] | None,
        _panel(
            "--status", help="Jobs in this state; several are separated by commas.", autocompletion=completion.states
        ),
    ] = None
    queue: Annotated[
        str | None, _panel("--queue", "-q", help="Jobs in this queue.", autocompletion=completion.queues)
    ] = None
    name: Annotated[str | None, _panel("--name", "--task", "-n", help="Jobs of this task, batch or load test.")] = None
    tag: Annotated[str | None, _panel("--tag", "-t", help="Jobs with this tag.")] = None
    text: Annotated[
        str | None, _panel("--text", help="Jobs with this text in their id, name, reason or last error.")
    ] = None
    group: Annotated[
        str | None,
        _panel(
            "--group",
            metavar="ID",
            help="Members of the group that has this job as its callback.",
            autocompletion=completion.jobs,
        ),
    ] = None
    older_than: Annotated[
        str | None, _panel("--older-than", metavar="AGE", help="Jobs submitted longer ago than this, such as 2h.")
    ] = None
    newer_than: Annotated[
        str | None, _panel("--newer-than", metavar="AGE", help="Jobs submitted within this time, such as 15m.")
    ] = None

    @property
    def any(self) -> bool:
        """Whether at least one filter is given."""
        return any(getattr(self, field) for field in self.__struct_fields__)

    @property
    def statuses(self) -> tuple[str, ...] | None:
        if not self.status:
            return None
        return tuple(word.strip() for words in self.status for word in words.split(","))

    async def query(self, store: JobStore) -> Query:
        """The filters as a query; refuses unknown states and malformed ids. Ages count from now."""
        await check_states(store, self.statuses or ())
        group = self.group and check_id(await full_id(store, self.group, field="group"), field="group")
        query = Query(
            status=self.statuses,
            queue=self.queue,
            name=self.name,
            tag=self.tag,
            text=self.text,
            group=group,
        )
        return by_age(
            query,
            older_than=self.older_than,
            newer_than=self.newer_than,
            now_ms=store.clock.now_ms(),
            fields=("older-than", "newer-than"),
        )
