"""The tables say what was found, also when it is not in our favour."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import report
from bench.distance import Wire
from bench.fleet import Report
from bench.queues import Drain, Found, Kill, Latency, Rates, Sizes
from bench.verdicts import verdicts

BESIDE = "On Redis: Mainstay beside the best peer"


def _found(name: str, title: str, store: str = "redis", **measured: object) -> Found:
    rates = {field: measured.pop(field) for field in Rates.__struct_fields__ if field in measured}
    fields = {"version": "1.0", "setting": "defaults", "rates": Rates(**rates), **measured}  # type: ignore[arg-type]
    return Found(name=name, title=title, store=store, **fields)  # type: ignore[arg-type]


def _report(*systems: Found, **more: object) -> Report:
    fields = {"at": "2026-01-01", "machine": {"cpu": "2 x Chip"}, "versions": {"redis": "7.0"}, "skipped": {}, **more}
    return Report(sizes=Sizes(), systems=list(systems), **fields)  # type: ignore[arg-type]


def _cells(kept: Report, title: str, row: str) -> list[str]:
    (section,) = [section for section in report.sections(kept) if section.title == title]
    (line,) = [line for line in section.lines if line[0] == row]
    return line[1:]


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    kept = _report(_found("huey", "Huey", one=[Drain(jobs=5, started=7.5)], kill=Kill(watched_s=20)))

    report.save(kept, tmp_path / "queues.json")

    assert report.load(tmp_path / "queues.json") == kept


def test_every_cell_stands_under_a_heading() -> None:
    wait, drains = Latency(samples=1, p50=1.0, p99=1.0), [Drain(jobs=5, started=50, cpu_us=9, rss_mb=34)]
    measured = {"one": drains, "two": drains, "idle": wait, "load": wait, "kill": Kill(watched_s=20)}
    measured["far"] = Rates(submit_one=[1.0], one=drains)
    kept = _report(_found("a", "Peer", **measured), _found("mainstay-redis", "Mainstay", **measured))

    for section in report.sections(kept):
        assert {len(line) for line in section.lines} == {len(section.headings)}, section.title
    assert len(report.sections(kept)) == 6


def test_a_rate_is_the_best_of_its_runs() -> None:
    kept = _report(
        _found("huey", "Huey", submit_one=[1000.0, 3000.0], one=[Drain(jobs=5, started=50, cpu_us=700, rss_mb=34)])
    )

    assert _cells(kept, "Rates, jobs a second", "Huey") == ["3,000", "-", "50", "-", "700", "34"]


def test_jobs_lost_or_run_twice_stand_beside_the_rate() -> None:
    drains = [Drain(jobs=9, started=50, committed=40, lost=2), Drain(jobs=9, started=60, repeated=1)]

    cell = _cells(_report(_found("saq", "SAQ", one=drains)), "Rates, jobs a second", "SAQ")[2]

    assert cell == "60 started, 40 committed; 2 lost; 1 run twice"


@pytest.mark.parametrize(
    ("kill", "cells"),
    [
        (Kill(watched_s=20, rerun_s=2.94, bystanders_s=[0, 0, 0]), ["after 2.9 s", "had run before"]),
        (Kill(watched_s=20, bystanders_s=[1.31, 1.4, 1.36]), ["not within 20 s", "after 1.4 s"]),
        (Kill(watched_s=20, bystanders_s=[None, 1.4, None]), ["not within 20 s", "2 of 3 not within 20 s"]),
    ],
)
def test_what_becomes_of_a_killed_job_is_told_in_seconds(kill: Kill, cells: list[str]) -> None:
    kept = _report(_found("x", "X", kill=kill))

    assert _cells(kept, "The worker is killed in the middle of a job", "X") == cells


def test_we_are_compared_with_the_best_peer_of_each_measure_by_what_is_committed() -> None:
    kept = _report(
        _found("a", "Slow", one=[Drain(jobs=5, started=100, rss_mb=50)]),
        _found("b", "Fast", one=[Drain(jobs=5, started=200, rss_mb=90)]),
        _found("mainstay-redis", "Mainstay", one=[Drain(jobs=5, started=1500, committed=1000, rss_mb=100)]),
    )

    rate = _cells(kept, BESIDE, "worked off, 1 process, jobs/s")
    memory = _cells(kept, BESIDE, "memory of one worker, MB")

    assert rate == ["1,000", "Fast", "200", "5.0x faster", "at least 5x: yes"]
    assert memory == ["100", "Slow", "50.0", "2.0x larger", ""]


def test_only_peers_on_the_same_server_are_beside_us_but_for_sqlite_which_has_none() -> None:
    kept = _report(
        _found("a", "On Redis", "redis", one=[Drain(jobs=5, started=100)]),
        _found("b", "On PostgreSQL", "postgresql", one=[Drain(jobs=5, started=200)]),
        *(_found(f"mainstay-{store}", "Us", store, one=[Drain(jobs=5, started=400)]) for store in report.TITLES),
    )

    found = {verdict.store: verdict.peer for verdict in verdicts(kept.systems) if verdict.measure.startswith("worked")}

    assert found == {"redis": "On Redis", "postgresql": "On PostgreSQL", "sqlite": "On PostgreSQL"}


def test_being_further_away_must_put_us_further_ahead() -> None:
    def judged(far_rate: float) -> bool | None:
        kept = _report(
            _found("a", "Peer", one=[Drain(jobs=5, started=100)], far=Rates(one=[Drain(jobs=5, started=10)])),
            _found("mainstay-redis", "Us", one=[Drain(jobs=5, started=500)], far=_worked_off(far_rate)),
        )
        (verdict,) = [each for each in verdicts(kept.systems) if "2 ms away" in each.measure]
        return verdict.met

    assert judged(60.0) is True
    assert judged(40.0) is False


def _worked_off(rate: float) -> Rates:
    return Rates(one=[Drain(jobs=5, started=rate)])


def test_a_variant_that_survives_the_kill_speaks_for_its_system() -> None:
    quick, slow = Latency(samples=9, p50=1.0, p99=2.0), Latency(samples=9, p50=5.0, p99=9.0)
    saved = Kill(watched_s=20, rerun_s=9.0)
    kept = _report(
        _found("a", "Loses", idle=quick, kill=Kill(watched_s=20)),
        _found("b", "Keeps, if told", idle=slow, kill=Kill(watched_s=20)),
        _found("b-late", "Told", variant_of="b", kill=saved),
        _found("mainstay-redis", "Us", idle=slow, kill=saved),
    )

    (verdict,) = [each for each in verdicts(kept.systems) if "killed job again" in each.measure]

    assert (verdict.peer, verdict.met) == ("Keeps, if told", True)


def test_what_the_proxy_itself_costs_is_told() -> None:
    near = _worked_off(450.0)
    kept = _report(
        _found("mainstay-redis", "Us", one=[Drain(jobs=5, started=500)], near=near, far=near),
        wires={"redis": Wire(direct=0.02, proxied=0.2, delayed=2.4)},
    )

    assert "0.02 ms, 0.20 ms through the proxy, 2.40 ms delayed" in report.about(kept)
    assert "leaves Mainstay 90% of its rate" in report.about(kept)


def test_a_peer_that_is_ahead_is_named() -> None:
    def wait(p50: float) -> Latency:
        return Latency(samples=9, p50=p50, p99=9.0, worst=9.0)

    behind = _report(_found("a", "Peer", idle=wait(1.0)), _found("mainstay-redis", "Mainstay", idle=wait(3.0)))
    level = _report(_found("a", "Peer", idle=wait(1.0)), _found("mainstay-redis", "Mainstay", idle=wait(1.0)))

    assert (
        report.peers_ahead(behind) == "A peer is ahead in: Redis, idle pickup p50, ms (Peer; Mainstay is 3.0x later)."
    )
    assert report.peers_ahead(level) == "No peer is ahead in any of these."


def test_what_was_skipped_or_failed_is_told_with_the_machine() -> None:
    broken = _found("b", "Broken")
    broken.trouble.append("the producer of Broken ended:\nTraceback")

    said = report.about(_report(broken, skipped={"dbos": "`postgres` is not on this machine"}, took_s=600.0))

    assert "2 x Chip, redis 7.0." in said
    assert "in 10 minutes" in said
    assert "Skipped: dbos (`postgres` is not on this machine)." in said
    assert "Trouble: the producer of Broken ended:" in said
