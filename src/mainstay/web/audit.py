"""The audit log: a line for whatever an operator did, for what was refused, and for every sign-in.

The log `mainstay.web.audit`, at the level INFO. What is said there was typed by somebody: it is written so that it
cannot look like another field, or another line. Tokens and payloads are never in it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request

from .caller import Caller, Scope
from .problems import Problem
from .security.rate_limit import address_of

#: what is asked for with these is written down
AUDITED: frozenset[Scope] = frozenset({"operate", "admin"})
#: characters of one value
_LONGEST = 500
#: of many ids, those that are named
_NAMED = 5
_PLAIN = re.compile(r"[\w.:/@%+-]+", re.ASCII)

log = logging.getLogger("mainstay.web.audit")


class AuditEntry:
    """Something that an operator asks for, and what becomes of it."""

    def __init__(self, name: str, request: Request) -> None:
        self.store: str | None = None
        """that is meant, once it is known"""
        self.said: dict[str, Any] = {}
        """what came of it, beside what was asked for"""
        self._asked: tuple[msgspec.Struct | None, ...] = ()
        self._name = name
        self._request = request

    def wants(self, *given: msgspec.Struct | None) -> None:
        """What was asked for. It is read when it is written down: of most deeds, nothing is."""
        self._asked = given

    def done(self) -> None:
        """With `dry_run` it was only looked at."""
        told = self._told()
        self._write("would" if told.get("dry_run") else "did", told)

    def refused(self, problem: Problem) -> None:
        """Also when it failed: then it may have been done all the same."""
        if problem.status == 429:  # however often somebody asks, the log is not to be filled by it
            return
        word = "refused" if problem.status < 500 else "failed"
        client = address_of(self._request.scope)
        self._write(word, {**self._told(), "status": problem.status, "code": problem.code, "client": client})

    def _told(self) -> dict[str, Any]:
        """What is not meant anyway."""
        told: dict[str, Any] = {}
        for struct in self._asked:
            if struct is not None:
                told |= _said(struct)
        return told | self.said

    def _write(self, word: str, told: Mapping[str, Any]) -> None:
        caller = getattr(self._request.state, "caller", None)
        where = {"path": self._request.scope["path"]}
        if self.store is not None:
            where = {"store": self.store, **where}
        write(word, self._name, caller.actor if isinstance(caller, Caller) else None, {**where, **told})


def write(word: str, name: str, actor: str | None, said: Mapping[str, Any]) -> None:
    """One line: `did=pause_queue actor=web:ann store=main ...`. Whoever is not known is `-`."""
    fields = {word: name, "actor": actor or "-", **said}
    log.info("%s", " ".join(f"{key}={_text(value)}" for key, value in fields.items()))


def _said(struct: msgspec.Struct) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if field.required or value != field.default:
            found[field.name] = _said(value) if isinstance(value, msgspec.Struct) else value
    ids = found.pop("ids", None)
    return found if ids is None else {**found, "ids": len(ids), "first": ids[:_NAMED]}


def _text(value: Any) -> str:
    """A word as it is; whatever else as JSON, in ASCII."""
    text = value if isinstance(value, str) and _PLAIN.fullmatch(value) else json.dumps(value, separators=(",", ":"))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


__all__ = ["AUDITED", "AuditEntry", "write"]
