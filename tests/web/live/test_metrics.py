"""What Prometheus is told, what the alert rules ask, and what probes are told."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from mainstay.cli import app
from mainstay.cluster.web.metrics import CLUSTER_METRICS
from mainstay.errors import MissingExtra, StoreError
from mainstay.lifecycle import JOB
from mainstay.model import private_queue
from mainstay.web.live import metrics
from mainstay.web.live.alerts import alert_rules
from mainstay.web.security.tokens import Tokens
from tests.web.conftest import Server, serving

FAST = {"snapshot_s": 0.01}
#: of every server, and of servers of a cluster
ALL = (*metrics.METRICS, *CLUSTER_METRICS)


async def scraped(server: Server) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = await server.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def of(found: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


async def looked(server: Server) -> None:
    """Wait for a look that began after now."""
    hub = server.site.hub
    hub.nudge("main")
    at_ms = hub.last_known("main").at_ms
    seen = 0
    async with contextlib.aclosing(hub.subscribe("main")) as snapshots:
        async for snapshot in snapshots:
            seen += snapshot.at_ms > at_ms
            if seen > 3:
                return


async def test_a_scrape_tells_what_the_stores_hold() -> None:
    async with serving(**FAST) as server:
        await server.control.jobs.submit("send", queue="mail")
        await server.control.operations.pause("mail")
        await looked(server)
        found = await scraped(server)
    assert of(found, "mainstay_store_up", store="main") == 1
    assert of(found, "mainstay_queue_jobs", store="main", queue="mail", status="pending") == 1
    assert of(found, "mainstay_queue_paused", store="main", queue="mail") == 1
    assert of(found, "mainstay_sessions", store="main") == 0


async def test_queues_that_were_made_for_one_job_have_no_numbers_of_their_own() -> None:
    async with serving(**FAST) as server:
        await server.control.jobs.submit("Shop", queue=private_queue("3f9c"))
        await looked(server)
        found = await scraped(server)
        pages = [(await server.client.get(path)).text for path in ("/", "/queues", "/api/v1/queues")]
        counts = server.site.hub.last_known("main").counts
    assert [labels for _, labels in found if "load-here" in str(labels)] == []
    assert [page for page in pages if "load-here" in page] == []
    assert counts == {"pending": 1}, "the job counts all the same"


async def test_states_that_wait_for_a_person_are_told_before_a_job_is_in_one() -> None:
    async with serving(**FAST) as server:
        await server.control.jobs.submit("send", queue="mail")
        await looked(server)
        found = await scraped(server)
    told = {dict(labels)["status"]: value for (name, labels), value in found.items() if name == "mainstay_queue_jobs"}
    assert told == {"pending": 1, "failed": 0, "partial": 0, "timed_out": 0, "quarantined": 0}


async def test_a_scrape_counts_requests_by_part_and_status() -> None:
    async with serving(**FAST) as server:
        await server.client.get("/api/v1/jobs")
        await server.client.get("/api/v1/jobs")
        await server.client.get("/api/v1/jobs/nonsense")
        found = await scraped(server)
    assert of(found, "mainstay_http_requests_total", part="api", method="GET", status="200") == 2
    assert of(found, "mainstay_http_requests_total", part="api", method="GET", status="422") == 1
    assert of(found, "mainstay_http_request_seconds_count", part="api") == 3


async def test_numbers_of_a_store_that_is_away_are_not_told_as_if_they_were_new() -> None:
    async with serving(**FAST) as server:
        await server.control.jobs.submit("send")
        await looked(server)

        async def away() -> None:
            raise StoreError("away")

        server.control.store.stats = away  # type: ignore[method-assign,assignment]
        await looked(server)
        found = await scraped(server)
    assert of(found, "mainstay_store_up", store="main") == 0
    assert not [name for name, _ in found if name == "mainstay_queue_jobs"]


async def test_metrics_are_for_whoever_may_read(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.add("prometheus", ["read"])
    async with serving(tokens=tokens, **FAST) as server:
        assert (await server.client.get("/metrics")).status_code == 401
        assert (await server.as_(secret).get("/metrics")).status_code == 200


async def test_without_the_extra_the_answer_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingExtra("metrics", "prometheus_client is not installed; pip install 'mainstay[prometheus]'")

    monkeypatch.setattr(metrics, "check_installed", missing)
    async with serving(**FAST) as server:
        answer = await server.client.get("/metrics")
    assert answer.status_code == 501
    assert "mainstay[prometheus]" in answer.json()["detail"]


async def test_live_means_that_it_turns_and_ready_that_every_store_answered(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    async with serving({"one": "memory:", "two": "memory:"}, tokens=tokens, **FAST) as server:
        assert (await server.client.get("/livez")).status_code == 200
        assert (await server.client.get("/readyz")).json()["ready"]

        async def away() -> None:
            raise StoreError("away: secret-host")

        server.stores.find("two").store.stats = away  # type: ignore[method-assign,assignment]
        server.stores.find("two").answered_s = time.monotonic() - 60
        answer = await server.client.get("/readyz")
        assert (answer.status_code, answer.json()["waits_for"]) == (503, ["two"])
        assert "retry-after" in answer.headers
        assert "secret-host" not in answer.text
        assert (await server.client.get("/livez")).status_code == 200


async def test_a_store_that_was_asked_and_did_not_answer_is_not_ready_sooner_than_one_that_was_not_asked() -> None:
    async with serving(snapshot_s=3600.0) as server:  # so seldom that nobody else asks it
        place = server.stores.first

        async def ready(silent_s: float) -> bool:
            place.answered_s = time.monotonic() - silent_s
            return (await server.client.get("/readyz")).status_code == 200

        assert [await ready(0.0), await ready(11.0), await ready(16.0)] == [True, True, False]
        place.note_failure(StoreError("away"))
        assert [await ready(0.0), await ready(11.0)] == [True, False]
        await place.store.stats()
        assert await ready(11.0)


def test_alert_rules_ask_only_for_what_is_told() -> None:
    told = {metric.name for metric in ALL}
    rules = [rule for group in yaml.safe_load(alert_rules())["groups"] for rule in group["rules"]]
    asked = {name for rule in rules for name in re.findall(r"mainstay_\w+", rule["expr"])}
    assert asked
    assert asked <= told
    for rule in rules:
        assert {"alert", "expr", "for", "labels", "annotations"} == rule.keys()
        assert {"summary", "description"} == rule["annotations"].keys()


def test_alert_rules_ask_only_for_labels_and_states_that_there_are() -> None:
    labels = {metric.name: set(metric.labels) for metric in ALL}
    rules = [rule for group in yaml.safe_load(alert_rules())["groups"] for rule in group["rules"]]
    for rule in rules:
        for name, chosen in re.findall(r"(mainstay_\w+)\{([^}]*)\}", rule["expr"]):
            for label, value in re.findall(r'(\w+)=~?"([^"]*)"', chosen):
                assert label in labels[name], rule["alert"]
                if label == "status" and name != "mainstay_http_requests_total":
                    assert set(value.split("|")) <= JOB.states.keys(), rule["alert"]


def test_alert_rules_name_commands_that_there_are_with_options_that_these_have() -> None:
    rules = [rule for group in yaml.safe_load(alert_rules())["groups"] for rule in group["rules"]]
    told = " ".join(rule["annotations"]["description"] for rule in rules)
    named = re.findall(r"\bmainstay ([a-z][^`]*)", told)
    assert named
    assert named == re.findall(r"`mainstay ([^`]+)`", told), "each can be told from the text around it"
    for command in named:
        found: Any = typer.main.get_command(app)
        words = command.split()
        while hasattr(found, "commands"):
            # commands are imported when they are asked for
            found = found.get_command(typer.Context(found), words.pop(0))
        options = {option for param in found.params for option in param.opts}
        assert {word for word in words if word.startswith("-")} <= options, command


def test_the_shell_prints_the_alert_rules() -> None:
    printed = CliRunner().invoke(app, ["serve", "--alerts"])
    assert (printed.exit_code, printed.stdout) == (0, alert_rules())
