"""Names that the server cannot store: it has no NUL character in a text. What people write (a reason, a message) is
stored with it escaped (`rows.stored_text`); a name is refused, because it would be another one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....errors import InvalidInput
from ...port import NewJob

_NAMES = ("name", "queue", "unique_key", "concurrency_key", "group", "session")


def admit_names(**names: str | Iterable[str] | None) -> None:
    """Refuse a name with a NUL, by the name of its field.

    >>> admit_names(queue="mail", tags=("a", "b"))
    """
    for field, value in names.items():
        for text in (value,) if isinstance(value, str) else value or ():
            if "\0" in text:
                raise InvalidInput(field, f"{text!r} has a NUL character, which PostgreSQL cannot store; take it out")


def admit_jobs(jobs: Sequence[NewJob]) -> None:
    """The same for all names of jobs. Looked for only once the server has refused them: nearly no job ever has one."""
    for new in jobs:
        admit_names(**{field: getattr(new.job, field, None) for field in _NAMES}, tags=new.job.options.tags)
        admit_names(actor=[event.actor for event in new.events])
        if new.key is not None:
            admit_names(key=(new.key.scope, new.key.name))
