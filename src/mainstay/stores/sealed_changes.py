"""The seal: how a store turns the moves that a caller names into rows and events, with its own key."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ..errors import InvalidInput, MainstayError
from ..lifecycle import Chain, apply
from .port import AnyChange, Change, ChangeResult, SealedChange

log = logging.getLogger("mainstay.stores")

Write = Callable[[list[SealedChange]], Awaitable[list[ChangeResult]]]
#: outcomes that do not withhold the changes of the same `apply(together=True)`
FINE = ("applied", "already_applied")


async def apply_sealed(
    changes: Sequence[AnyChange], chain: Chain, write: Write, *, together: bool
) -> list[ChangeResult]:
    """Seal changes and have them written. A change that the table refuses, or that changes nothing, is not passed on:
    its result is known."""
    if together and len({change.before.id for change in changes}) < len(changes):
        raise InvalidInput("changes", "a row is in it twice; with together=True, each row may be changed once")
    sealed: list[SealedChange] = []
    known: dict[int, ChangeResult] = {}
    for place, change in enumerate(changes):
        if isinstance(change, SealedChange):
            sealed.append(change)
        elif isinstance(made := seal(change, chain), SealedChange):
            sealed.append(made)
        else:
            known[place] = made
    if together and any(result.outcome not in FINE for result in known.values()):
        return [known.get(place) or ChangeResult("withheld", change.before) for place, change in enumerate(changes)]
    if not known:
        return await write(sealed)
    written = iter(await write(sealed))
    results = [known.get(place) or next(written) for place in range(len(changes))]
    return withheld(results) if together else results


def seal(change: Change, chain: Chain) -> SealedChange | ChangeResult:
    """The change with its row and events; or its result, if there is nothing to write."""
    before = change.before
    try:
        moved = apply(before, *change.moves, now_ms=change.at_ms, actor=change.actor, chain=chain)
        if change.on_last is not None:
            # it is applied in the transaction, where an error would fail the whole batch
            msgspec.json.encode((change.on_last.reason, change.on_last.details))
    except MainstayError as error:
        return ChangeResult("invalid", before, error=error)
    except Exception as error:
        # an unexpected error is the result of this change: the rest of the batch is written
        log.exception("cannot move job_id=%s", before.id)
        broken = MainstayError(
            f"job {before.id}: its next state could not be decided: {type(error).__name__}: {str(error)[:500]}; "
            f"it is still {before.status}"
        )
        broken.__cause__ = error
        return ChangeResult("invalid", before, error=broken)
    if not moved.events:
        return ChangeResult("already_applied", before)
    return SealedChange(
        before=before,
        after=moved.job,
        events=moved.events,
        kind=moved.kind,
        holder=change.holder,
        spawn=change.spawn,
        on_last=change.on_last,
    )


def withheld(results: Sequence[ChangeResult]) -> list[ChangeResult]:
    """The results of changes that are written together: if one was refused, those that fit are withheld."""
    if all(result.outcome in FINE for result in results):
        return list(results)
    return [ChangeResult("withheld", result.job) if result.outcome == "applied" else result for result in results]
