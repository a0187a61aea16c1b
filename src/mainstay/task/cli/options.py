"""The options of a submit as flags of the command line."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ...cli import OptionGroup, completion, full_id, key_value, panel
from ...control import read_deadline, read_time
from ...errors import InvalidInput
from ...stores import JobStore

_panel = panel("Job options")
#: flags that have another name in code, or are converted here
_READ = frozenset({"unique", "unique_key", "run_at", "queue_deadline", "tag", "metadata", "after"})


class Flags(OptionGroup, frozen=True, kw_only=True):
    """The options of the job on the command line; None: not given."""

    queue: Annotated[str | None, _panel("--queue", help="Queue of the job.", autocompletion=completion.queues)] = None
    priority: Annotated[int | None, _panel("--priority", help="Priority, -100 to 100; higher runs first.")] = None
    delay: Annotated[str | None, _panel("--delay", help="Start after this time, such as 5m.", metavar="TIME")] = None
    run_at: Annotated[
        str | None, _panel("--run-at", help="Start at this time, such as 2030-01-31T08:00+01:00.", metavar="ISO TIME")
    ] = None
    retries: Annotated[int | None, _panel("--retries", help="Attempts after the first failure.")] = None
    timeout: Annotated[str | None, _panel("--timeout", help="Time limit of one attempt, or off.", metavar="TIME")] = (
        None
    )
    queue_deadline: Annotated[
        str | None, _panel("--queue-deadline", help="Start within or before this time, or not at all.", metavar="TIME")
    ] = None
    stall_timeout: Annotated[
        str | None, _panel("--stall-timeout", help="Longest time without progress, or off.", metavar="TIME")
    ] = None
    key: Annotated[
        str | None, _panel("--key", help="Idempotency key: a second submit stores nothing. With --jsonl: KEY:LINE.")
    ] = None
    unique: Annotated[bool, _panel("--unique", help="Allow one unsettled job with these arguments.")] = False
    unique_key: Annotated[
        str | None, _panel("--unique-key", help="Allow one unsettled job with this key.", metavar="KEY")
    ] = None
    on_clash: Annotated[
        str | None, _panel("--on-clash", help="What to do if such a job exists.", metavar="return|refuse|replace")
    ] = None
    concurrency_key: Annotated[
        str | None, _panel("--concurrency-key", help="Concurrency key whose limit applies.", metavar="KEY")
    ] = None
    tag: Annotated[list[str] | None, _panel("--tag", help="Tag; may be repeated.")] = None
    metadata: Annotated[
        list[str] | None, _panel("--metadata", help="Metadata entry; may be repeated.", metavar="KEY=VALUE")
    ] = None
    keep: Annotated[str | None, _panel("--keep", help="Time to keep the settled job, or off.", metavar="TIME")] = None
    after: Annotated[
        list[str] | None,
        _panel("--after", help="Start after this job; may be repeated.", metavar="ID", autocompletion=completion.jobs),
    ] = None
    after_when: Annotated[
        str | None, _panel("--after-when", help="What those jobs must reach first.", metavar="succeeded|settled")
    ] = None
    after_failed: Annotated[
        str | None, _panel("--after-failed", help="What the job does if one of them fails.", metavar="skip|fail")
    ] = None
    durability: Annotated[
        str | None,
        _panel(
            "--durability", help="How durable the job is when the command returns.", metavar="local|replicated|applied"
        ),
    ] = None

    async def options(self, store: JobStore) -> dict[str, Any]:
        """The options that were given, as code would write them. Control checks their values."""
        flags = msgspec.structs.asdict(self)
        options = {name: value for name, value in flags.items() if value is not None and name not in _READ}
        if self.unique and self.unique_key is not None:
            raise InvalidInput("unique", "give --unique (by the arguments) or --unique-key, not both")
        if self.unique or self.unique_key is not None:
            options["unique"] = True if self.unique_key is None else self.unique_key
        if self.run_at is not None:
            options["run_at"] = read_time(self.run_at, field="run_at")
        if self.queue_deadline is not None:
            options["queue_deadline"] = read_deadline(self.queue_deadline)
        if self.tag:
            options["tags"] = self.tag
        if self.metadata:
            options["metadata"] = dict(key_value(entry, field="metadata") for entry in self.metadata)
        if self.after:
            options["after"] = [await full_id(store, each, field="after") for each in self.after]
        return options
