"""ETag and If-Match: a change that applies only to a given version of a job."""

from __future__ import annotations

import re
from typing import Any

from ..problems import Problem
from .operation import ApiRequest

#: the version, and after a dash a checksum of the reports of its worker, which changes ignore. A proxy that compresses
#: makes a tag weak, and means the same version
_ONE = r'(?:W/)?"[0-9]{1,15}(?:-[0-9a-f]{8})?"'
_TAGS = re.compile(rf"{_ONE}(?:[ \t]*,[ \t]*{_ONE})*")
_VERSION = re.compile(r'"([0-9]{1,15})')
PATTERN = rf"^(\*|{_ONE}(,[ ]?{_ONE})*)$"


async def wanted_version(ask: ApiRequest[Any, Any], *, needed: bool = False) -> int | None:
    """The version in `If-Match`; of several, the current one. None: any version."""
    headers = ask.request.headers.getlist("if-match")
    if not headers:
        if needed:
            raise Problem(
                428,
                "if_match_needed",
                "this cannot be undone, so a request must name the version of the job: send its ETag as If-Match, "
                "or If-Match: * for any version",
                field="If-Match",
            )
        return None
    given = ", ".join(headers).strip()
    if given == "*":
        return None
    if not _TAGS.fullmatch(given):
        raise Problem(
            422, "invalid_input", f'{given[:100]!r} is not an ETag of a job, like "7", nor *', field="If-Match"
        )
    named = [int(version) for version in _VERSION.findall(given)]
    if len(named) == 1:
        return named[0]
    job = await ask.served.control.jobs.get(ask.path("id"))
    # if the job has none of them, any of them is refused
    return job.version if job.version in named else named[0]


def is_known(ask: ApiRequest[Any, Any], tag: str) -> bool:
    """Whether `If-None-Match` contains this tag."""
    given = ask.request.headers.get("if-none-match")
    if given is None:
        return False
    known = (each.strip().removeprefix("W/") for each in given.split(","))
    return any(each in ("*", tag) for each in known)
