"""How a worker is to run, as its command line says."""

from __future__ import annotations

import os

import msgspec

from ..stores import shown_url
from .messages import EngineConfig

__all__ = ["Orders", "shown_url"]


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker is to run."""

    target: str
    """`module:app`"""
    name: str
    queues: tuple[str, ...] = ()
    concurrency: int | None = None
    processes: int = 1
    grace_s: float = 30.0
    """how long jobs may go on after the first request to stop"""
    log_level: str = "info"
    json_logs: bool = False

    def config(self, link_fd: int, recorder_fd: int, solo_fd: int = -1) -> EngineConfig:
        """What an engine of this worker is told."""
        return EngineConfig(
            target=self.target,
            name=self.name,
            queues=self.queues,
            concurrency=self.concurrency,
            log_level=self.log_level,
            json_logs=self.json_logs,
            supervisor_pid=os.getpid(),
            link_fd=link_fd,
            recorder_fd=recorder_fd,
            solo_fd=solo_fd,
        )
