"""The options of a submit, as flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import typer

from ...cli import completion
from ...cli.ids import full_id
from ...control.written import deadline, moment
from ...errors import InvalidInput
from ...stores import JobStore

_PANEL = "Options of the job"
#: flags that are called otherwise in code, or read here
_READ = frozenset({"unique", "unique_key", "run_at", "queue_deadline", "tag", "metadata", "after"})


def _flag(name: str, text: str, **more: Any) -> Any:
    return typer.Option(f"--{name}", help=text, show_default=False, rich_help_panel=_PANEL, **more)


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of the job on the command line; None: nothing."""

    queue: str | None = None
    priority: int | None = None
    delay: str | None = None
    run_at: str | None = None
    retries: int | None = None
    timeout: str | None = None
    queue_deadline: str | None = None
    stall_timeout: str | None = None
    key: str | None = None
    unique: bool = False
    unique_key: str | None = None
    on_clash: str | None = None
    concurrency_key: str | None = None
    tag: list[str] | None = None
    metadata: list[str] | None = None
    keep: str | None = None
    after: list[str] | None = None
    after_when: str | None = None
    after_failed: str | None = None
    durability: str | None = None

    OPTIONS: ClassVar[Mapping[str, Any]] = {
        "queue": Annotated[str | None, _flag("queue", "Where it waits.", autocompletion=completion.queues)],
        "priority": Annotated[int | None, _flag("priority", "-100 to 100; higher goes first.")],
        "delay": Annotated[str | None, _flag("delay", "Not before this has passed: 5m.", metavar="TIME")],
        "run_at": Annotated[
            str | None, _flag("run-at", "Not before this: 2030-01-31T08:00+01:00.", metavar="ISO TIME")
        ],
        "retries": Annotated[int | None, _flag("retries", "Further attempts after a failure.")],
        "timeout": Annotated[str | None, _flag("timeout", "How long it may run, or off.", metavar="TIME")],
        "queue_deadline": Annotated[
            str | None, _flag("queue-deadline", "Start within this, or before it, or not at all.", metavar="TIME")
        ],
        "stall_timeout": Annotated[
            str | None, _flag("stall-timeout", "How long without progress, or off.", metavar="TIME")
        ],
        "key": Annotated[
            str | None, _flag("key", "Submitted twice with this key is submitted once. With --jsonl: KEY:LINE.")
        ],
        "unique": Annotated[bool, _flag("unique", "One unsettled job with these arguments.")],
        "unique_key": Annotated[str | None, _flag("unique-key", "One unsettled job with this key.", metavar="KEY")],
        "on_clash": Annotated[
            str | None, _flag("on-clash", "When there is one already.", metavar="return|refuse|replace")
        ],
        "concurrency_key": Annotated[str | None, _flag("concurrency-key", "Counts towards this limit.", metavar="KEY")],
        "tag": Annotated[list[str] | None, _flag("tag", "A tag; may be given again.")],
        "metadata": Annotated[
            list[str] | None, _flag("metadata", "An entry; may be given again.", metavar="KEY=VALUE")
        ],
        "keep": Annotated[str | None, _flag("keep", "How long it is kept once settled, or off.", metavar="TIME")],
        "after": Annotated[
            list[str] | None,
            _flag("after", "Wait for this job; may be given again.", metavar="ID", autocompletion=completion.jobs),
        ],
        "after_when": Annotated[
            str | None, _flag("after-when", "When those have done what.", metavar="succeeded|settled")
        ],
        "after_failed": Annotated[
            str | None, _flag("after-failed", "What it does if one of them fails.", metavar="skip|fail")
        ],
        "durability": Annotated[
            str | None,
            _flag("durability", "How safe it is when this returns.", metavar="local|replicated|applied"),
        ],
    }

    @classmethod
    def given(cls, _: typer.Context, values: Mapping[str, Any]) -> Flags:
        """From what was given on the command line."""
        return cls(**values)

    async def options(self, store: JobStore) -> dict[str, Any]:
        """As code would write them, only those that were given; their values are checked by whoever reads them."""
        made = {
            name: value
            for name, value in msgspec.structs.asdict(self).items()
            if value is not None and name not in _READ
        }
        if self.unique and self.unique_key is not None:
            raise InvalidInput("unique", "give --unique (by the arguments) or --unique-key, not both")
        if self.unique or self.unique_key is not None:
            made["unique"] = True if self.unique_key is None else self.unique_key
        if self.run_at is not None:
            made["run_at"] = moment(self.run_at, field="run_at")
        if self.queue_deadline is not None:
            made["queue_deadline"] = deadline(self.queue_deadline)
        if self.tag:
            made["tags"] = self.tag
        if self.metadata:
            made["metadata"] = _entries(self.metadata)
        if self.after:
            made["after"] = [await full_id(store, each, field="after") for each in self.after]
        return made


def _entries(given: Sequence[str]) -> dict[str, str]:
    entries = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise InvalidInput("metadata", f"{each!r} is not of the form key=value")
        entries[key] = value
    return entries
