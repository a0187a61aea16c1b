"""What travels between an engine and its children arrives as it was."""

from __future__ import annotations

import msgspec
import pytest

from mainstay import errors
from mainstay.control import JobRequest, Plan, decoded
from mainstay.errors import InvalidInput, JobNotFound, MainstayError
from mainstay.model import BLANK, Options, Settings
from mainstay.worker.endings import Done, Ending, Failed
from mainstay.worker.job_context import Stopped
from mainstay.worker.pipe import Ended, RunJob, from_wire, refusal, refused, to_wire


def travel(ending: Ending) -> Ending:
    data = msgspec.msgpack.encode(to_wire(ending, Settings()))
    return from_wire(msgspec.msgpack.decode(data, type=Ended))


def test_every_part_of_a_follow_up_arrives() -> None:
    plan = Plan(options=Options(tags=("a",), metadata={"k": "v"}), queue="mail", unique=True, after=("x", "y"))
    given = JobRequest("next", {"n": 1}, plan, b"content", "018bcfe5-6800-7000-8000-000000000001")
    for field in msgspec.structs.fields(JobRequest):
        assert getattr(given, field.name) != field.default, f"{field.name} is not tried"
    ending = travel(Done(None, (given,)))
    assert isinstance(ending, Done)
    assert ending.result is None
    (found,) = ending.followups
    assert decoded(bytes(found.payload)) == {"n": 1}
    assert msgspec.structs.replace(found, payload=given.payload) == given


def test_options_given_by_name_are_read_where_they_were_given() -> None:
    ending = travel(Done(None, (JobRequest("next", None, {"queue": "mail", "delay": "5m"}),)))
    assert isinstance(ending, Done)
    plan = ending.followups[0].options
    assert isinstance(plan, Plan)
    assert (plan.queue, plan.delay_ms) == ("mail", 300_000)


def test_a_result_that_is_none_differs_from_no_result() -> None:
    ending = travel(Done(msgspec.Raw(msgspec.msgpack.encode(None))))
    assert isinstance(ending, Done)
    assert ending.result is not None
    assert decoded(bytes(ending.result)) is None


def test_a_whole_row_arrives() -> None:
    row = msgspec.structs.replace(BLANK, id="a", payload=b"\x00\xff", checkpoint=b"c", options=Options(tags=("t",)))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(RunJob(row)), type=RunJob) == RunJob(row)


@pytest.mark.parametrize("error", [InvalidInput("payload", "too odd"), JobNotFound("j"), errors.StaleClaim("lost")])
def test_our_errors_arrive_as_they_were(error: MainstayError) -> None:
    found = refused(refusal(error))
    assert isinstance(found, MainstayError)
    assert type(found) is type(error)
    assert (str(found), vars(found), found.code) == (str(error), vars(error), error.code)


def test_an_error_that_is_not_ours_arrives_as_text() -> None:
    found = refused(refusal(OSError("disk on fire")))
    assert type(found) is MainstayError
    assert str(found) == "OSError: disk on fire"


def test_a_failure_arrives_with_its_own_wait() -> None:
    from mainstay.model import ErrorInfo

    given = Failed(error=ErrorInfo(type="T", message="m", traceback="tb", retryable=False), after_s=1.5)
    assert travel(given) == given


def test_a_request_to_stop_arrives_as_one() -> None:
    """A job in a child that waits for the store leaves like a job in a thread does."""
    found = refused(refusal(Stopped("its worker stops")))
    assert isinstance(found, Stopped)
    assert str(found) == "its worker stops"
