"""The options of a target."""

from __future__ import annotations

import msgspec


class TargetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The behaviour of a target. A request can override everything but the ports in its query.

    >>> TargetOptions(latency="bimodal 20ms 1.5s 1%", errors="2%").port
    0
    """

    host: str = "127.0.0.1"
    port: int = 0
    """0: any free port"""
    latency: str = "none"
    """none, "20ms", "uniform 10ms 30ms", "normal 20ms 5ms", "lognormal 20ms 0.5", "exponential 20ms",
    "bimodal 20ms 1.5s 1%", "trace p50=20ms p99=80ms p100=1s\""""
    errors: str | float = 0.0
    """share of error responses of `/`: "2%", 0.02"""
    error_status: int = 503
    size: str | int = 2
    """of the responses of `/`, in bytes: 512, "1KB", "2MiB\""""
    tls: bool = False
    cert: str | None = None
    """file with a certificate (and its key), which implies tls; without one, a self-signed one is created"""
    key: str | None = None
    """file with the key, if that is not in the same file"""
    seed: int | None = None
    """the same seed gives the same delays and errors, in the order of the requests"""
    tcp_port: int | None = None
    """a port that echoes; 0: any free port"""
    udp_port: int | None = None
    """the same for datagrams"""
    keep: int = 1_000_000
    """how many delays are kept"""

    @property
    def secure(self) -> bool:
        """A certificate implies TLS."""
        return self.tls or self.cert is not None
