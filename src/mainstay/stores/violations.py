"""What several adapters find in the same way, in the same words."""

from __future__ import annotations

from .port import Violation


def bad_lead(name: str, holder: str, until_ms: int | str, *, repaired: bool) -> Violation:
    """A lead that ends later than any that was given."""
    return Violation(
        code="bad_leader",
        message=f"{holder!r} leads {name!r} until {until_ms}, longer than any session was given; the next session that "
        "asks takes over",
        repaired="its time was ended" if repaired else None,
    )


def stray_refusal(job_id: str, *, repaired: bool) -> Violation:
    return Violation(
        code="stray_refusal",
        job_id=job_id,
        message="a refused write is on record for it, and there is no such job",
        repaired="it was removed" if repaired else None,
    )
