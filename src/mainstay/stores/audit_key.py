"""One audit key per store, for as long as it lives: a trail sealed with two could be checked with neither."""

from __future__ import annotations

from ..errors import WrongAuditKey


def admit_fingerprint(stored: str, given: str, place: str) -> None:
    """Refuse a key whose fingerprint (`Chain.fingerprint`, "" for none) is not the one the store was begun with."""
    if stored == given:
        return
    if not stored:
        what = "was begun without an audit key, and one is given: unset MAINSTAY_AUDIT_KEY, or begin a new database"
    else:
        other = "another one is given" if given else "none is given"
        what = f"is sealed with an audit key, and {other}: set MAINSTAY_AUDIT_KEY to the key it was begun with"
    raise WrongAuditKey(f"the audit trail of {place} {what}; nothing was opened")
