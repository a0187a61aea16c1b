"""The port of outside runners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

OutsideState = Literal["waiting", "running", "exited", "gone"]


class OutsideStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of an outside job, as its runner knows it."""

    state: OutsideState
    """gone: the runner does not know it any more, and its end is unknown"""
    exit_code: int | None = None
    """of an exited job, if the runner knows it"""
    detail: str = ""
    """in the words of the runner"""

    @property
    def over(self) -> bool:
        return self.state in ("exited", "gone")

    @property
    def text(self) -> str:
        """The state in words.

        >>> OutsideStatus(state="exited", exit_code=3).text, OutsideStatus(state="waiting", detail="PENDING").text
        ('exited with 3', 'is waiting (PENDING)')
        """
        text = {"exited": "exited", "gone": "is gone"}.get(self.state, f"is {self.state}")
        if self.exit_code is not None:
            text += f" with {self.exit_code}"
        return f"{text} ({self.detail})" if self.detail else text


class Runner(Protocol):
    """Runs commands outside workers. A job is identified by the name it was started with, and by its handle, the
    runner's own id, which may be unknown (an empty text) after a crash.

    Every method raises `RunnerFailed` if the runner does not answer or refuses. This says nothing about the job.
    """

    @property
    def every_s(self) -> float:
        """Minimum time between two requests for a job."""
        ...

    async def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> str:
        """Start a command under a name, with `env` added to its environment. Returns the handle; if a job of this name
        exists, running or not, the handle of that job."""
        ...

    async def look(self, handle: str, name: str) -> OutsideStatus:
        """The status of a job."""
        ...

    async def stop(self, handle: str, name: str) -> None:
        """Stop a job that is not over. It may take a while to end."""
        ...
