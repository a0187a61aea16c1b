"""What the client reads is what the server describes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from mainstay.client import (
    async_client,
    async_handle,
    async_resources,
    sync_client,
    sync_handle,
    sync_resources,
)
from mainstay.control import json_view
from mainstay.lifecycle import Event
from mainstay.model import Job, Options, RetryPolicy, Session
from mainstay.stores import Stats
from mainstay.web.api import job_responses, openapi
from mainstay.web.api.routes import operations
from tools import unasync

#: of the web package itself and of every kind of job
OPERATIONS = operations()


@pytest.mark.parametrize(
    ("view", "stored", "left_out", "added"),
    [
        (json_view.JobView, Job, set(), set()),
        (json_view.JobOptionsView, Options, set(), set()),
        (json_view.RetryPolicyView, RetryPolicy, set(), set()),
        (json_view.EventView, Event, set(), set()),
        (
            json_view.SessionView,
            Session,
            {"beat_ms", "offer", "standing", "degraded"},
            {"queues", "tasks", "at_work", "silent_ms", "age_ms"},
        ),
        (json_view.StatsView, Stats, {"routed", "leads"}, {"live_sessions", "limits", "unserved"}),
    ],
)
def test_a_view_has_the_fields_of_what_is_stored(view: Any, stored: Any, left_out: set[str], added: set[str]) -> None:
    assert set(view.__struct_fields__) == set(stored.__struct_fields__) - left_out | added


def test_the_client_reads_the_types_that_the_server_describes() -> None:
    described = {operation.id: operation.answers[200].type for operation in OPERATIONS}

    assert described["get_job"] is json_view.JobView
    assert described["get_stats"] is json_view.StatsView
    assert described["list_jobs"] is job_responses.JobPage
    assert described["list_events"] is job_responses.EventPage
    assert described["act_on_jobs"] is job_responses.BulkResult


def test_a_schema_is_named_for_what_it_describes() -> None:
    schemas = openapi.described(OPERATIONS, stores=["main"])["components"]["schemas"]

    assert {"Job", "JobOptions", "RetryPolicy", "Event", "Session", "Stats"} <= schemas.keys()
    assert schemas["JobPage"]["properties"]["jobs"]["items"] == {"$ref": "#/components/schemas/Job"}


@pytest.mark.parametrize(
    ("waits", "blocks"),
    [
        (async_client.AsyncClient, sync_client.Client),
        (async_handle.AsyncJobHandle, sync_handle.JobHandle),
        (async_resources.AsyncJobsResource, sync_resources.JobsResource),
        (async_resources.AsyncQueuesResource, sync_resources.QueuesResource),
        (async_resources.AsyncSchedulesResource, sync_resources.SchedulesResource),
        (async_resources.AsyncBatchesResource, sync_resources.BatchesResource),
    ],
)
def test_both_clients_offer_the_same(waits: type, blocks: type) -> None:
    assert _methods(waits) == _methods(blocks)


def test_the_synchronous_client_is_what_the_asynchronous_one_generates() -> None:
    assert unasync.outdated() == [], "run `make generate`"


def _methods(kind: type) -> dict[str, list[str]]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {
        name: [str(parameter) for parameter in inspect.signature(each).parameters.values() if name != "__init__"]
        for name, each in found
        if not name.startswith("_")
    }
