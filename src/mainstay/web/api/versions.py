"""ETag and If-Match: a change that is meant for a job as it was seen."""

from __future__ import annotations

import re
from typing import Any

from ..problems import Problem
from .operation import Ask

#: the version, and after a dash what its holder had reported by then: nobody's change depends on that
_TAG = re.compile(r'"([0-9]{1,15})(?:-[0-9a-f]{8})?"')
PATTERN = r'^(\*|"[0-9]{1,15}(-[0-9a-f]{8})?")$'


def wanted_version(ask: Ask[Any, Any], *, needed: bool = False) -> int | None:
    """The version that `If-Match` names; None: however it stands by now."""
    given = ask.request.headers.get("if-match")
    if given is None:
        if needed:
            raise Problem(
                428,
                "if_match_needed",
                "this cannot be undone, so say which version of the job is meant: send its ETag as If-Match, "
                "or If-Match: * for however it stands",
                field="If-Match",
            )
        return None
    given = given.strip()
    if given == "*":
        return None
    found = _TAG.fullmatch(given)
    if found is None:
        raise Problem(
            422, "invalid_input", f'{given[:100]!r} is not an ETag of a job, like "7", nor *', field="If-Match"
        )
    return int(found[1])


def is_known(ask: Ask[Any, Any], tag: str) -> bool:
    """Whether the caller has seen this, by `If-None-Match`."""
    given = ask.request.headers.get("if-none-match")
    if given is None:
        return False
    known = (each.strip().removeprefix("W/") for each in given.split(","))
    return any(each in ("*", tag) for each in known)
