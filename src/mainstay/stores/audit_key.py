"""One audit key per store, for its whole life: a trail sealed with two keys could be checked with neither."""

from __future__ import annotations

from ..errors import WrongAuditKey


def admit_fingerprint(stored: str, given: str, place: str) -> None:
    """Refuse a key whose fingerprint (`Chain.fingerprint`, "" for none) is not that of the store's first key."""
    if stored == given:
        return
    if not stored:
        what = "was begun without an audit key, but one is set: unset MAINSTAY_AUDIT_KEY, or begin a new database"
    else:
        other = "another one is set" if given else "none is set"
        what = f"is sealed with an audit key, but {other}: set MAINSTAY_AUDIT_KEY to the key it was begun with"
    raise WrongAuditKey(f"the audit trail of {place} {what}; nothing was opened")
