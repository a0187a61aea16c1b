"""From the actions of a leader to the rows that change: the moves, and the units that are created with them. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from ..control import JobRequest, RowChange, cancel_unit, in_epoch, node_names, unit_changes
from ..lifecycle import Move
from ..model import PLACE_QUEUE, Job, Session
from .decisions import Action, AddLate, BeginLeaderPhase, End, Freeze, NodeJobView
from .results import NodeJobResult, StoredResult
from .spec import KIND, LEADER, LOCAL, NodeSpec, NodeUnitCall, leader_unit, row_name, unit_id, unit_of

_REASON_LIMIT = 200


def changes_of(action: Action, view: NodeJobView, spec: NodeSpec, *, epoch: int, now_ms: int) -> list[RowChange]:
    """The changes of an action: written together, or none. Each event names the epoch of the leader."""
    return [in_epoch(change, epoch) for change in _changes(action, view, spec, now_ms)]


def _changes(action: Action, view: NodeJobView, spec: NodeSpec, now_ms: int) -> list[RowChange]:
    job = view.job
    match action:
        case Freeze():
            return [_start(job, action, spec, now_ms)]
        case AddLate(nodes=nodes):
            units = tuple(_node_unit(job, job.token, spec, node, view.members) for node in nodes)
            note = Move(to=job.status, reason=f"joined later: {node_names(nodes)}", flag="note")
            return [RowChange(job, (note,), units)]
        case BeginLeaderPhase(round=round_, ended=ended, reason=reason):
            unit = _leader_unit(job, job.token, spec, view.members, ended, round_)
            return [RowChange(job, (Move(to="finalizing", reason=reason),), (unit,))]
        case End():
            cancelled = [cancel_unit(unit, f"the job ends: {action.reason or action.to}") for unit in action.cancels]
            return [*cancelled, RowChange(job, (_end(action),))]
        case _:
            return unit_changes(action, job, now_ms=now_ms)


def _start(job: Job, freeze: Freeze, spec: NodeSpec, now_ms: int) -> RowChange:
    """The members are frozen: the job runs, without a holder, under the next token."""
    token = job.token + 1
    members = tuple(node.node for node in freeze.members)
    first = [Move(to="pending", reason="its time has come")] if job.status == "scheduled" else []
    fields: dict[str, Any] = {
        "token": token,
        "session": None,
        "claimed_ms": None,
        "started_ms": now_ms,
        "starts": job.starts + 1,
        "extra_ms": 0,
    }
    reason = f"runs on {node_names(freeze.members)}" if members else "has a leader phase only"
    moves = [*first, Move(to="running", reason=reason, details={"members": list(members)}, fields=fields)]
    if members:
        units = tuple(_node_unit(job, token, spec, node, members) for node in freeze.members)
    else:
        moves.append(Move(to="finalizing", reason="the leader phase begins"))
        units = (_leader_unit(job, token, spec, (), (), 1),)
    return RowChange(job, tuple(moves), units)


def _end(end: End) -> Move:
    result = None if end.result is None else encoded_result(end.result)
    # the error has the whole message; that of a leader phase may be long
    reason = end.reason[:_REASON_LIMIT] or None
    return Move(to=end.to, reason=reason, fields={"result": result, "error": end.error})


def encoded_result(result: NodeJobResult) -> bytes:
    """The result as it is stored. Its value is the stored result of the leader phase, sealed as that is."""
    return msgspec.msgpack.encode(StoredResult.of(result))


def _node_unit(job: Job, token: int, spec: NodeSpec, node: Session, members: tuple[str, ...]) -> JobRequest:
    call = NodeUnitCall(
        phase="local",
        claim=token,
        members=members,
        arguments=spec.arguments,
        node=node.node,
        labels=node.labels,
    )
    return _unit(job, token, spec, unit_of(node.node), LOCAL, call)


def _leader_unit(
    job: Job, token: int, spec: NodeSpec, members: tuple[str, ...], ended: tuple[str, ...], round_: int
) -> JobRequest:
    call = NodeUnitCall(
        phase="leader", claim=token, members=members, arguments=spec.arguments, ended=ended, round=round_
    )
    return _unit(job, token, spec, leader_unit(round_), LEADER, call)


def _unit(job: Job, token: int, spec: NodeSpec, unit: str, phase: str, call: NodeUnitCall) -> JobRequest:
    plan = msgspec.structs.replace(spec.plan, kind=KIND, queue=PLACE_QUEUE, parent=job.id, unit=unit)
    payload = msgspec.Raw(msgspec.msgpack.encode(call))
    return JobRequest(row_name(job.name, phase), payload, plan, id=unit_id(job.id, token, unit))


__all__ = ["changes_of", "encoded_result"]
