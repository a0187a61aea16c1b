"""A cache of the secrets in payloads, so that each payload is searched once."""

from __future__ import annotations

from collections import OrderedDict

from ...model import Job

#: the secrets of one payload; None: it was not searched, or has too many secrets
Secrets = tuple[str, ...] | None

#: the most entries, and the most characters of all
_KEPT, _KEPT_CHARACTERS = 20_000, 16 * 1024 * 1024


class SecretCache:
    """Secrets by job. A payload never changes, so an entry stays valid."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[str, int], Secrets] = OrderedDict()
        self._characters = 0

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, job: Job) -> bool:
        return (job.id, job.created_ms) in self._found

    def get(self, job: Job) -> Secrets:
        key = job.id, job.created_ms
        self._found.move_to_end(key)
        return self._found[key]

    def keep(self, job: Job, secrets: Secrets) -> None:
        self._characters += _characters(secrets) - _characters(self._found.pop((job.id, job.created_ms), None))
        self._found[job.id, job.created_ms] = secrets
        while len(self._found) > _KEPT or self._characters > _KEPT_CHARACTERS:
            _, dropped = self._found.popitem(last=False)
            self._characters -= _characters(dropped)


def _characters(secrets: Secrets) -> int:
    return sum(map(len, secrets)) if secrets else 0


__all__ = ["SecretCache", "Secrets"]
