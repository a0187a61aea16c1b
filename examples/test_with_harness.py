"""Testing your own tasks: no worker, no file, and a retry after five minutes takes a millisecond.

$ pytest test_with_harness.py
"""

from mainstay import App, context
from mainstay.testing import Harness

app = App("sqlite:///jobs.db")


@app.task(retries=3, backoff_base="5m", jitter=False)
async def welcome(to: str) -> str:
    if context().attempt == 1:
        raise ConnectionError("the mail server is busy")
    return f"sent to {to}"


def test_a_welcome_that_fails_is_sent_five_minutes_later() -> None:
    with Harness(app) as box:
        welcome.submit_sync("ann@example.org")
        box.assert_submitted(welcome, to="ann@example.org", times=1)
        drained = box.drain_sync()

    assert [run.attempt for run in drained.runs] == [1, 2]
    assert drained.took.total_seconds() >= 300
