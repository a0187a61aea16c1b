"""A kind of job of your own: its handlers run on any worker, with retries, history and results like a task's.

$ mainstay worker custom_kind:app &
$ python custom_kind.py

A distribution adds commands, API routes and dashboard pages as well, by an entry point for its `Kind`:

    [project.entry-points."mainstay.kinds"]
    survey = "surveys:KIND"
"""

import msgspec

from mainstay import App
from mainstay.kinds import Kind, register_kind
from mainstay.worker import Declarations, Host

register_kind(Kind(name="survey", declarations="custom_kind:Surveys"))


class SurveyHandler:
    """How a worker runs the jobs of one survey: bytes to arguments, a call, and the result to bytes."""

    mode = "loop"
    is_async = True
    decide = None

    def __init__(self, question: str) -> None:
        self.question = question

    def unpack(self, payload: bytes) -> dict[str, str]:
        return msgspec.msgpack.decode(payload, type=dict[str, str])

    async def call(self, arguments: dict[str, str]) -> str:
        return f"{arguments['who']}: {self.question} Yes."

    def pack(self, result: str) -> msgspec.Raw:
        return msgspec.Raw(msgspec.msgpack.encode(result))


class Surveys(Declarations):
    """The surveys of an app: `app.part("survey")`."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.client = host.client

    @property
    def queues(self) -> set[str]:
        return {"surveys"}

    def declare(self, name: str, question: str) -> None:
        self.handlers[name] = SurveyHandler(question)

    async def submit(self, name: str, who: str) -> str:
        control = await self.client.open()
        made = await control.jobs.submit(name, {"who": who}, kind="survey", queue="surveys")
        return str(made.id)


app = App("sqlite:///jobs.db")
app.part("survey").declare("tea", "Do you drink tea?")

if __name__ == "__main__":
    job_id = app.client.run(lambda: app.part("survey").submit("tea", "Ann"), what="submit")
    print(app.handle(job_id).result_sync(timeout="60s"))
