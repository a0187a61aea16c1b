"""ETag and If-Match: a change that is meant for a job as it was seen."""

from __future__ import annotations

import re
from typing import Any

from ..problems import Problem
from .operation import ApiRequest

#: the version, and after a dash what its holder had reported by then: nobody's change depends on that. A proxy that
#: compresses makes a tag weak, and means the same version
_ONE = r'(?:W/)?"[0-9]{1,15}(?:-[0-9a-f]{8})?"'
_TAGS = re.compile(rf"{_ONE}(?:[ \t]*,[ \t]*{_ONE})*")
_VERSION = re.compile(r'"([0-9]{1,15})')
PATTERN = rf"^(\*|{_ONE}(,[ ]?{_ONE})*)$"


async def wanted_version(ask: ApiRequest[Any, Any], *, needed: bool = False) -> int | None:
    """The version that `If-Match` names; of several the one that the job has. None: however it stands by now."""
    headers = ask.request.headers.getlist("if-match")
    if not headers:
        if needed:
            raise Problem(
                428,
                "if_match_needed",
                "this cannot be undone, so say which version of the job is meant: send its ETag as If-Match, "
                "or If-Match: * for however it stands",
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
    # if it is none of them, any will be refused
    return job.version if job.version in named else named[0]


def is_known(ask: ApiRequest[Any, Any], tag: str) -> bool:
    """Whether the caller has seen this, by `If-None-Match`."""
    given = ask.request.headers.get("if-none-match")
    if given is None:
        return False
    known = (each.strip().removeprefix("W/") for each in given.split(","))
    return any(each in ("*", tag) for each in known)
