"""Refuses names that the server cannot store. Its text cannot have a NUL character. In free text (a reason, a message)
it is escaped (`codec.stored_text`); a name is refused, because escaping would make it another name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....errors import InvalidInput
from ...port import NewJob

_NAMES = ("name", "queue", "unique_key", "concurrency_key", "group", "session")


def admit_names(**names: str | Iterable[str] | None) -> None:
    """Refuse a name with a NUL character; the error names its field.

    >>> admit_names(queue="mail", tags=("a", "b"))
    """
    for field, value in names.items():
        for text in (value,) if isinstance(value, str) else value or ():
            if "\0" in text:
                raise InvalidInput(field, f"{text!r} has a NUL character, which PostgreSQL cannot store; remove it")


def admit_jobs(jobs: Sequence[NewJob]) -> None:
    """The same for all names of jobs. Only called after the server has refused them: hardly any job has one."""
    for new in jobs:
        admit_names(**{field: getattr(new.job, field, None) for field in _NAMES}, tags=new.job.options.tags)
        admit_names(actor=[event.actor for event in new.events])
        if new.key is not None:
            admit_names(key=(new.key.scope, new.key.name))
