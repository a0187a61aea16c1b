"""Limits of a connection."""

from __future__ import annotations

import msgspec


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds, sizes in bytes. Only tests change them."""

    url: int = 8 * 1024
    head: int = 32 * 1024
    """the request line and all headers"""
    head_s: float = 10.0
    """from the first byte of a request, or from the connection, to the end of its headers; also the time for which the
    rest of a refused body is read and discarded, so that the client gets to read the response"""
    body_s: float = 60.0
    """for the whole body"""
    unread_s: float = 30.0
    """the time within which a client must read what was sent to it"""
    idle_s: int = 15
    """between two requests"""
    connections: int = 1000
    """beside the live streams"""
    connections_each: int = 500
    """of one address, including its streams"""
    grace_s: int = 10
    """for open requests when the server stops"""


__all__ = ["ConnectionLimits"]
