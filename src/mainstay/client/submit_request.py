"""Jobs to submit, as they are sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ..clock import instant_ms
from ..errors import InvalidInput, UnknownOption
from ..task import SubmitOptions
from .calls import duration, packed

#: the most bytes of a bulk request; a server accepts twice as many
_LARGE = 1024 * 1024
_CAN_BE_OFF = ("timeout", "stall_timeout")


class SubmitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A job for `submit_many` and `group`; made by `client.job(...)`."""

    name: str
    data: dict[str, Any]

    def __repr__(self) -> str:
        return f"<new job of {self.name}>"


def submit_request(name: str, payload: Any, options: Mapping[str, Any]) -> SubmitRequest:
    """A job with the options of the library; raises `InvalidInput`.

    >>> submit_request("mail.send", {"to": "a@b.c"}, {"delay": timedelta(minutes=5), "queue": None}).data
    {'name': 'mail.send', 'payload': {'to': 'a@b.c'}, 'delay': '300000ms'}
    """
    data: dict[str, Any] = {"name": name, "payload": payload}
    for option, value in options.items():
        if option not in SubmitOptions.__annotations__:
            raise UnknownOption(option, SubmitOptions.__annotations__)
        if value is None:
            if option in _CAN_BE_OFF:
                raise InvalidInput(option, "None is ambiguous; write 'off' for no limit, or leave it out")
            continue
        data[option] = sent_option(option, value)
    return SubmitRequest(name=name, data=data)


def checked(job: SubmitRequest, field: str) -> SubmitRequest:
    """The job; raises `InvalidInput` if it is not a `SubmitRequest`."""
    if not isinstance(job, SubmitRequest):
        raise InvalidInput(field, f"{job!r} is not a job to submit; write client.job(name, payload, ...)")
    return job


def chunked(jobs: Iterable[SubmitRequest], *, most: int, key: Any) -> Iterator[list[msgspec.Raw]]:
    """Jobs in chunks for one request each. Every job has a key, so that a chunk can be sent again."""
    if not isinstance(most, int) or most < 1:
        raise InvalidInput("chunk", f"{most!r} is not a whole number of jobs, 1 or more")
    chunk: list[msgspec.Raw] = []
    size = 0
    for index, job in enumerate(jobs):
        data = checked(job, f"jobs[{index}]").data
        one = packed(data if "key" in data else {**data, "key": key()}, where=f"jobs[{index}].")
        if chunk and (len(chunk) >= most or size + len(one) > _LARGE):
            yield chunk
            chunk, size = [], 0
        chunk.append(msgspec.Raw(one))
        size += len(one) + 1
    if chunk:
        yield chunk


def sent_option(option: str, value: Any) -> Any:
    """The value of an option as it is sent."""
    if isinstance(value, timedelta):
        return duration(value, field=option)
    if isinstance(value, datetime):
        instant_ms(value, field=option)
        return value.isoformat()
    if option == "after":
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise InvalidInput("after", f"{value!r} is not a list of jobs; write after=[...]")
        return [getattr(each, "id", each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(value)
    return value


__all__ = ["SubmitRequest", "checked", "chunked", "sent_option", "submit_request"]
