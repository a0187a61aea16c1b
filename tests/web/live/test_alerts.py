"""The alert rules and the page that is scraped, as Prometheus' own tool sees them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from mainstay.web.live.alerts import alert_rules
from servers import ServerMissing
from servers.programs import program
from tests import places
from tests.web.conftest import serving
from tests.web.live.test_metrics import looked

TRIALS = Path(__file__).with_name("alerts.test.yml")


@pytest.fixture(scope="module")
def promtool() -> str:
    try:
        with places.unlimited():
            return program("promtool", "promtool")
    except ServerMissing as error:
        places.without(error)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "alerts.yml"
    path.write_text(alert_rules())
    return path


def said(*command: str | Path, given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_prometheus_takes_the_rules(promtool: str, rules: Path) -> None:
    assert "SUCCESS" in said(promtool, "check", "rules", "--lint-fatal", rules)


def test_each_alert_comes_when_it_should_and_only_then(promtool: str, rules: Path) -> None:
    said(promtool, "test", "rules", shutil.copy(TRIALS, rules.parent))


def test_each_alert_is_tried() -> None:
    trials = yaml.safe_load(TRIALS.read_text())["tests"]
    tried = {one["alertname"] for trial in trials for one in trial["alert_rule_test"] if one["exp_alerts"]}
    known = {rule["alert"] for group in yaml.safe_load(alert_rules())["groups"] for rule in group["rules"]}
    assert tried == known


async def test_prometheus_has_nothing_to_say_against_what_is_told(promtool: str) -> None:
    async with serving(snapshot_s=0.01) as server:
        job = await server.control.jobs.submit("send", queue="mail:a/b")
        session = await server.control.claims.open_session(worker="w")
        await server.control.claims.claim(["mail:a/b"], session.id, 1)
        await server.control.operations.cancel(job.id, actor="ann")
        await server.client.get("/api/v1/jobs/nonsense")
        await looked(server)
        told = (await server.client.get("/metrics")).text
    assert 'status="cancelling"' in told
    assert said(promtool, "check", "metrics", given=told) == ""
