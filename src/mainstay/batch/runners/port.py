"""The port: what a batch asks of whatever runs its units elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

OutsideState = Literal["waiting", "running", "exited", "gone"]


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner knows of an outside job."""

    state: OutsideState
    """gone: the runner does not know it any more, and nobody knows how it ended"""
    exit_code: int | None = None
    """of one that has exited, if the runner knows it"""
    detail: str = ""
    """in the runner's own words"""

    @property
    def over(self) -> bool:
        return self.state in ("exited", "gone")

    @property
    def told(self) -> str:
        """In a few words.

        >>> Outside(state="exited", exit_code=3).told, Outside(state="waiting", detail="PENDING").told
        ('exited with 3', 'is waiting (PENDING)')
        """
        text = {"exited": "exited", "gone": "is gone"}.get(self.state, f"is {self.state}")
        if self.exit_code is not None:
            text += f" with {self.exit_code}"
        return f"{text} ({self.detail})" if self.detail else text


class Runner(Protocol):
    """Runs a command elsewhere. A job there is known by the name it was started with, and by what the runner calls it:
    its handle, which may be unknown (an empty text) after a crash.

    Every method raises `RunnerFailed` when the runner cannot be asked or refuses: that is no answer about the job.
    """

    @property
    def every_s(self) -> float:
        """How often it may be asked."""
        ...

    async def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> str:
        """Start a command under a name, with this added to its environment; its handle. If there is a job of this name
        already, running or over, that one's."""
        ...

    async def look(self, handle: str, name: str) -> Outside:
        """How it stands."""
        ...

    async def stop(self, handle: str, name: str) -> None:
        """End it, if it is not over. It may take a while to end after this."""
        ...
