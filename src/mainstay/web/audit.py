"""The audit log: one line for each change by an operator, for each refusal, and for each sign-in.

The log `mainstay.web.audit`, at the level INFO. Values come from users, so they are quoted: a value cannot look like
another field or another line. Tokens and payloads are never in it.
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

#: operations with these scopes are logged
AUDITED: frozenset[Scope] = frozenset({"operate", "admin", "code"})
#: the most characters of a value
_LONGEST = 500
#: how many of many ids are listed
_NAMED = 5
_PLAIN = re.compile(r"[\w.:/@%+-]+", re.ASCII)

log = logging.getLogger("mainstay.web.audit")


class AuditEntry:
    """One operation of an operator, and its result."""

    def __init__(self, name: str, request: Request) -> None:
        self.store: str | None = None
        """name of the store, once it is known"""
        self.result: dict[str, Any] = {}
        """fields of the line beside the parameters"""
        self._parameters: tuple[msgspec.Struct | None, ...] = ()
        self._name = name
        self._request = request

    def takes(self, *parameters: msgspec.Struct | None) -> None:
        """Set the query and body; called again, others instead, without what does not belong into a log. They are read
        when the line is written, since most operations have no line."""
        self._parameters = parameters

    def done(self) -> None:
        """Write a line for an operation that was done, or previewed with `dry_run`."""
        fields = self._fields()
        self._write("would" if fields.get("dry_run") else "did", fields)

    def refused(self, problem: Problem) -> None:
        """Write a line for an operation that was refused, or that failed; a failed one may have been done."""
        if problem.status == 429:  # a client that asks too often must not fill the log
            return
        word = "refused" if problem.status < 500 else "failed"
        client = address_of(self._request.scope)
        self._write(word, {**self._fields(), "status": problem.status, "code": problem.code, "client": client})

    def _fields(self) -> dict[str, Any]:
        """Parameters that differ from their defaults, and the result."""
        fields: dict[str, Any] = {}
        for struct in self._parameters:
            if struct is not None:
                fields |= _given(struct)
        return fields | self.result

    def _write(self, word: str, fields: Mapping[str, Any]) -> None:
        caller = getattr(self._request.state, "caller", None)
        target = {"path": self._request.scope["path"]}
        if self.store is not None:
            target = {"store": self.store, **target}
        write(word, self._name, caller.actor if isinstance(caller, Caller) else None, {**target, **fields})


def write(word: str, name: str, actor: str | None, fields: Mapping[str, Any]) -> None:
    """Write one line: `did=pause_queue actor=web:ann store=main ...`. An unknown actor is `-`."""
    line = {word: name, "actor": actor or "-", **fields}
    log.info("%s", " ".join(f"{key}={_text(value)}" for key, value in line.items()))


def _given(struct: msgspec.Struct) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if field.required or value != field.default:
            given[field.name] = _given(value) if isinstance(value, msgspec.Struct) else value
    ids = given.pop("ids", None)
    return given if ids is None else {**given, "ids": len(ids), "first": ids[:_NAMED]}


def _text(value: Any) -> str:
    """A word as it is; any other value as JSON, in ASCII."""
    text = value if isinstance(value, str) and _PLAIN.fullmatch(value) else json.dumps(value, separators=(",", ":"))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


__all__ = ["AUDITED", "AuditEntry", "write"]
