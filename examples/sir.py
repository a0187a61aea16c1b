"""A study of an epidemic: 20 sets of parameters, 10 seeds each, then a table of what came of them.

    python examples/sir.py

starts two workers, submits the study, waits, and prints the table. Kill the workers or the program whenever you like
and start it again: it goes on where it was, and when all is there it has nothing to run. Jobs and outputs are kept in
the folder `sir-study` where it is started, or where MAINSTAY_STORE and MAINSTAY_OUTPUTS say.

A file of your own looks like this one: a function that runs one simulation (`simulate`), one that sums up the runs of a
set of parameters (`spread`), and one that sums up all sets (`table`).
"""

from __future__ import annotations

import contextlib
import csv
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mainstay import Aggregate, App, Outputs, grid
from mainstay.batch import UnitResult

HERE = Path("sir-study")
PEOPLE = 1000
FIRST_CASES = 10
DAYS = 365

PARAMS = grid(beta=[0.15, 0.2, 0.3, 0.4, 0.6], gamma=[0.1, 0.15, 0.2, 0.3])
SEEDS = range(10)

app = App(
    os.environ.get("MAINSTAY_STORE", f"sqlite:///{HERE}/jobs.db"),
    outputs=os.environ.get("MAINSTAY_OUTPUTS", f"file:{HERE}/outputs"),
)


class Params(msgspec.Struct, frozen=True):
    """What is varied. A set that does not fit is refused when the study is submitted."""

    beta: float
    """contacts per day that would infect"""
    gamma: float
    """part of the infectious who recover each day"""


def epidemic(params: Params, chance: random.Random) -> Iterator[tuple[int, int, int]]:
    """Susceptible, infectious and recovered at the end of each day; one event after the other (Gillespie)."""
    susceptible, infectious, now = PEOPLE - FIRST_CASES, FIRST_CASES, 0.0
    for day in range(1, DAYS + 1):
        while infectious:
            infections = params.beta * susceptible * infectious / PEOPLE
            recoveries = params.gamma * infectious
            wait = chance.expovariate(infections + recoveries)
            if now + wait > day:
                break  # the wait has no memory: it may begin anew tomorrow
            now += wait
            if chance.random() * (infections + recoveries) < infections:
                susceptible, infectious = susceptible - 1, infectious + 1
            else:
                infectious -= 1
        now = float(day)
        yield susceptible, infectious, PEOPLE - susceptible - infectious


def spread(params: Params, runs: list[UnitResult]) -> dict[str, float]:
    """How many fell ill and when it was worst, over the seeds of one set of parameters."""
    attack_rates, peak_days = [], []
    for run in runs:
        with run["course"].open(newline="") as file:
            days = [{name: int(value) for name, value in row.items()} for row in csv.DictReader(file)]
        attack_rates.append(1 - days[-1]["susceptible"] / PEOPLE)
        peak_days.append(max(days, key=lambda day: day["infectious"])["day"])
    return {
        "beta": params.beta,
        "gamma": params.gamma,
        "runs": len(runs),
        "attack_rate": round(statistics.mean(attack_rates), 4),
        "attack_rate_sd": round(statistics.stdev(attack_rates), 4),
        "peak_day": round(statistics.mean(peak_days), 1),
        "peak_day_sd": round(statistics.stdev(peak_days), 1),
    }


def table(sets: list[UnitResult], out: Outputs) -> None:
    """All sets of parameters, a row each."""
    rows = [one.json() for one in sets]
    with out["table"].open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


@app.batch(
    name="sir",
    outputs={"course": "course.csv"},
    aggregate=spread,
    overall=Aggregate(table, outputs={"table": "table.csv"}),
    # what `simulate` calls is not looked at: when the model changes, this number does
    version="1",
)
def simulate(params: Params, seed: int, out: Outputs) -> None:
    """One epidemic. The same seed makes the same one."""
    with out["course"].open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["day", "susceptible", "infectious", "recovered"])
        for day, counts in enumerate(epidemic(params, random.Random(seed)), 1):
            writer.writerow([day, *counts])


def main() -> int:
    HERE.mkdir(exist_ok=True)
    run = app.submit_batch_sync(simulate, params=PARAMS, seeds=SEEDS)
    with workers(2):
        job = run.wait_sync("10m")
    units = run.status_sync().units
    print(f"{job.id} {job.status}: {job.reason}")
    print(f"{units.made} units were run, the outputs of {units.there} were there already")
    if job.status == "succeeded":
        print(run.read_sync("table").decode(), end="")
    else:
        print(f"what is missing: `mainstay jobs outputs {job.id}`; to run it again: `mainstay jobs resume {job.id}`")
    app.close_sync()
    return 0 if job.status == "succeeded" else 1


@contextlib.contextmanager
def workers(number: int) -> Iterator[None]:
    """In earnest they run elsewhere, all the time: `mainstay worker sir:app`."""
    command = [sys.executable, "-m", "mainstay", "worker", "sir:app", "--concurrency", "4", "--log-level", "warning"]
    # they import this file by its name
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent)}
    started = [subprocess.Popen(command, env=environment) for _ in range(number)]
    try:
        yield
    finally:
        for worker in started:
            worker.terminate()
        for worker in started:
            worker.wait()


if __name__ == "__main__":
    sys.exit(main())
