"""What one connection may ask of the server, and for how long."""

from __future__ import annotations

import msgspec


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Times are seconds, sizes bytes. Nobody needs others but tests."""

    url: int = 8 * 1024
    head: int = 32 * 1024
    """the request line and all headers"""
    head_s: float = 10.0
    """from the first byte of a request, or from the connection, to the end of its headers; also how long the rest of a
    refused body is read and thrown away, so that the client comes to read the answer"""
    body_s: float = 60.0
    """for all of the body"""
    unread_s: float = 30.0
    """how long a client may leave unread what was sent to it"""
    idle_s: int = 15
    """between two requests"""
    connections: int = 1000
    """beside the live streams"""
    connections_each: int = 500
    """of one address, its streams among them"""
    grace_s: int = 10
    """for what is being answered when the server is told to stop"""


__all__ = ["ConnectionLimits"]
