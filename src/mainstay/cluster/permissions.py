"""What each role may publish and subscribe to on the bus. The server enforces it, so that a subject proves its sender.

A node reaches its own subjects only: it cannot speak as another node, and reads no answers but its own.
"""

from __future__ import annotations

import msgspec

from ..bus.nats import PING_VARZ, PRESENCE_SUBJECTS
from ..errors import InvalidInput

ROLES = ("manager", "node", "operator")


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who connects, as its certificate says. The name `*` stands for all names."""

    role: str
    name: str
    cluster: str = "local"
    environment: str = "default"
    datacenter: str = "default"
    queues: tuple[str, ...] = ()
    """the queues that a node may claim from; empty: all"""


class BusPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """Subjects and patterns."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def permissions_of(identity: Identity) -> BusPermissions:
    """The permissions of one identity.

    >>> permissions_of(Identity(role="node", name="n1")).subscribe
    ('control.node.n1.>', 'control.slice.n1.>', '_INBOX.node.n1.>')
    """
    role, name = identity.role, identity.name
    inbox = f"_INBOX.{role}.{name}.>"
    # a method is one word: with more, a caller could choose other names that begin with its own
    calls = (f"*.store.{role}.{name}.*", f"control.at.*.store.{role}.{name}.*", f"data.bundle.{role}.{name}.*")
    if role == "node":
        return BusPermissions(
            publish=(
                *calls,
                f"control.beat.{name}",
                f"control.ended.{name}",
                f"telemetry.output.{name}",
                f"data.window.{name}.>",
                f"telemetry.line.{name}.>",
            ),
            subscribe=(f"control.node.{name}.>", f"control.slice.{name}.>", inbox),
        )
    if role == "operator":
        return BusPermissions(
            publish=(*calls, f"data.cluster.operator.{name}.*", f"data.history.operator.{name}.*"),
            subscribe=("telemetry.output.*", "data.live.*", inbox),
        )
    if role == "manager":
        return BusPermissions(
            publish=(
                *calls,
                f"data.cluster.manager.{name}.*",
                f"data.history.manager.{name}.*",
                "control.node.>",
                "control.slice.>",
                "control.manager.>",
                "data.live.>",
                PING_VARZ,
            ),
            subscribe=(
                *(f"{kind}.store.>" for kind in ("control", "dispatch", "data")),
                f"control.at.{name}.>",
                "control.beat.*",
                "control.ended.*",
                "control.manager.>",
                "data.cluster.>",
                "data.bundle.>",
                "data.window.>",
                "data.history.>",
                "data.live.*",
                "telemetry.output.*",
                "telemetry.line.>",
                *PRESENCE_SUBJECTS,
                inbox,
            ),
        )
    raise InvalidInput("role", f"{role!r} is not one of {', '.join(ROLES)}")


__all__ = ["ROLES", "BusPermissions", "Identity", "permissions_of"]
