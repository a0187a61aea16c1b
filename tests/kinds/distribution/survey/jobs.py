"""What an app declares of surveys, and how a worker runs one."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstay.control.explain import Advice
from mainstay.model import Job
from mainstay.worker import Declarations, Host


class Surveys(Declarations):
    """The surveys of an app."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._client = host.client

    def declare(self, name: str, answer: str) -> None:
        self.handlers[name] = SurveyHandler(answer)

    async def submit(self, name: str, question: str) -> str:
        control = await self._client.open()
        made = await control.jobs.submit(name, {"question": question}, kind="survey", queue="surveys")
        found: str = made.id
        return found

    @property
    def queues(self) -> set[str]:
        return {"surveys"} if self.handlers else set()


class SurveyHandler:
    """Gives every question the same answer."""

    mode: Any = "loop"
    is_async = True
    decide = None

    def __init__(self, answer: str) -> None:
        self._answer = answer

    def unpack(self, payload: bytes) -> dict[str, str]:
        found: dict[str, str] = msgspec.msgpack.decode(payload)
        return found

    async def call(self, arguments: dict[str, str]) -> str:
        if arguments["question"] == "":
            raise ValueError("there is no question")
        return f"{arguments['question']} {self._answer}"

    def pack(self, result: str) -> msgspec.Raw:
        return msgspec.Raw(msgspec.msgpack.encode(result))


def advice(job: Job) -> list[Advice]:
    return [Advice(why="ask again", command=f"mainstay survey ask {job.name}")]
