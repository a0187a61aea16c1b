"""The log of a worker: one line a record, on stderr; the same in its supervisor and its engines.

Control characters are escaped, so that the text of an error can neither end a line nor control a terminal. A traceback
follows its record; each of its lines begins with a mark, so that none looks like a record.

Fields given as `extra` (`context().log` adds those of a job) follow the message as `key=value`; with JSON they are keys
beside it.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import IO, Any

import msgspec

from ..control import one_line
from ..errors import InvalidInput

#: the mark at the beginning of each line of a traceback
_TRACE = "  | "

LEVELS = ("debug", "info", "warning", "error")

#: the attributes of every record; all others were given as `extra`
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str = "info", *, as_json: bool = False, stream: IO[str] | None = None) -> None:
    """Set up the root logger. A program that sets up its own logging when it is imported overrides it."""
    if level.lower() not in LEVELS:
        raise InvalidInput("log-level", f"{level!r} is not one of {', '.join(LEVELS)}")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if as_json else PlainLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # debug records of asyncio are about asyncio itself
    logging.getLogger("asyncio").setLevel(logging.INFO)


class PlainLines(logging.Formatter):
    """For people.

    >>> record = logging.makeLogRecord({"msg": "sent", "levelname": "INFO", "name": "mainstay.job", "job_id": "7"})
    >>> PlainLines().format(record)[20:]
    'info mainstay.job sent job_id=7'
    """

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_quoted(value)}" for key, value in extras(record).items())
        at = datetime.fromtimestamp(record.created).astimezone()
        message = one_line(record.getMessage())
        text = f"{at:%Y-%m-%d %H:%M:%S} {record.levelname.lower()} {record.name} {message}{fields}"
        return "\n".join([text, *(f"{_TRACE}{one_line(line)}" for line in _trace(self, record).split("\n") if line)])


class JsonLines(logging.Formatter):
    """For machines: an object a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
            **extras(record),
        }
        if trace := _trace(self, record):
            fields["traceback"] = trace
        return msgspec.json.encode(fields, enc_hook=repr).decode()


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """The fields given with a record."""
    return {key: value for key, value in vars(record).items() if key not in _OWN}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info and not record.exc_text:
        record.exc_text = formatter.formatException(record.exc_info)
    parts = [record.exc_text or "", formatter.formatStack(record.stack_info) if record.stack_info else ""]
    return "\n".join(part for part in parts if part)


def _quoted(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and text and not any(c.isspace() for c in text) else repr(text)
