"""What the client reads is what the server describes."""

from __future__ import annotations

import inspect
from typing import Any, get_origin

import msgspec
import pytest

from mainstay.web.api import bulk, shapes, stores
from mainstay.web.client import (
    answers,
    async_client,
    async_handle,
    async_resources,
    sync_client,
    sync_handle,
    sync_resources,
)
from tools import unasync


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (answers.Job, shapes.JobShape),
        (answers.Event, shapes.EventShape),
        (answers.Session, shapes.SessionShape),
        (answers.Working, shapes.WorkingShape),
        (answers.Stats, stores.StatsSeen),
        (answers.Done, bulk.Done),
        (answers.JobPage, shapes.JobPage),
        (answers.UnitPage, shapes.UnitPage),
        (answers.Trail, shapes.Trail),
        (answers.Story, shapes.Story),
    ],
)
def test_an_answer_has_the_fields_that_the_server_gives(ours: Any, theirs: Any) -> None:
    assert _fields(ours) == _fields(theirs)


def test_the_options_of_a_job_are_those_that_the_server_gives() -> None:
    (options,) = [field.type for field in msgspec.structs.fields(shapes.JobShape) if field.name == "options"]
    (retry,) = [field.type for field in msgspec.structs.fields(options) if field.name == "retry"]

    assert _fields(answers.JobOptions) == _fields(options)
    assert _fields(answers.RetryPolicy) == _fields(retry)


@pytest.mark.parametrize(
    ("waits", "blocks"),
    [
        (async_client.AsyncClient, sync_client.Client),
        (async_handle.AsyncHandle, sync_handle.Handle),
        (async_resources.AsyncJobs, sync_resources.Jobs),
        (async_resources.AsyncQueues, sync_resources.Queues),
        (async_resources.AsyncSchedules, sync_resources.Schedules),
        (async_resources.AsyncBatches, sync_resources.Batches),
    ],
)
def test_both_clients_offer_the_same(waits: type, blocks: type) -> None:
    assert _methods(waits) == _methods(blocks)


def test_the_synchronous_client_is_what_the_asynchronous_one_generates() -> None:
    assert unasync.outdated() == [], "run `make generate`"


def _fields(struct: Any) -> dict[str, Any]:
    """Names, and types as far as they are not structs, which are compared for themselves."""
    return {field.name: _plain(field.type) for field in msgspec.structs.fields(struct)}


def _plain(kind: Any) -> Any:
    if get_origin(kind) in (list, tuple):
        return "many"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "struct"
    return kind


def _methods(kind: type) -> dict[str, list[str]]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {
        name: [str(parameter) for parameter in inspect.signature(each).parameters.values() if name != "__init__"]
        for name, each in found
        if not name.startswith("_")
    }
