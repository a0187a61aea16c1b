"""What a class and a submission say together."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mainstay.errors import InvalidInput
from mainstay.load.hooks import depends, step
from mainstay.load.plan import LoadOptions, WorkflowPlan, plan_of
from mainstay.load.planned_run import PlannedRun
from mainstay.load.workflow import Workflow
from tests.load.trials import GET, written


def made(name: str = "Shop", base: type = Workflow, **fields: Any) -> type[Workflow]:
    async def act(self: object) -> None: ...

    return type(name, (base,), {"act": step()(act), **fields})


def planned(*workflows: type[Workflow], **options: Any) -> dict[str, WorkflowPlan]:
    return plan_of({one.__name__: one for one in workflows}, LoadOptions(**options)).workflows


def test_without_anything_said_one_user_loops_for_ten_seconds() -> None:
    plan = planned(made())["Shop"]

    assert (plan.model, plan.most_users, plan.duration_s, plan.drain_s) == ("closed", 1, 10.0, 30.0)


@pytest.mark.parametrize(
    ("field", "of_class", "given", "found", "expected"),
    [
        ("vus", 3, 7, lambda plan: plan.most_users, 7),
        ("duration", "1m", "5s", lambda plan: plan.duration_s, 5.0),
        ("think", "1s", "2s-3s", lambda plan: plan.think, (2.0, 3.0)),
        ("pacing", "1s", "2s", lambda plan: plan.pacing_s, 2.0),
        ("drain", "1s", "0s", lambda plan: plan.drain_s, 0.0),
        ("timeout", "1s", "2s", lambda plan: plan.timeout_s, 2.0),
        ("base_url", "http://a", "http://b", lambda plan: plan.base_url, "http://b"),
        ("iterations", 5, 9, lambda plan: plan.iterations, 9),
    ],
)
def test_what_a_submission_says_overrides_the_class(
    field: str, of_class: Any, given: Any, found: Any, expected: Any
) -> None:
    cls = made(**{field: of_class})

    assert found(planned(cls, **{field: given})["Shop"]) == expected
    assert found(planned(cls)["Shop"]) != expected


def test_a_number_of_users_replaces_the_rate_of_the_class() -> None:
    plan = planned(made(rate="100/s"), vus=5)["Shop"]

    assert (plan.model, plan.most_users) == ("closed", 5)


def test_a_rate_replaces_the_stages_and_iterations_of_the_class() -> None:
    plan = planned(made(stages=[("1s", 5)]), rate="50/s", duration="2s")["Shop"]
    other = planned(made(iterations=5), rate="50/s")["Shop"]

    assert (plan.model, plan.duration_s) == ("open", 2.0)
    assert other.iterations is None


@pytest.mark.parametrize("given", [{"rate": "10/s"}, {"stages": "1s:10/s"}])
def test_a_rate_replaces_what_the_class_says_of_pauses(given: dict[str, Any]) -> None:
    plan = planned(made(pacing="100ms", think="1s"), **given)["Shop"]

    assert (plan.model, plan.pacing_s, plan.think) == ("open", None, None)


@pytest.mark.parametrize("field", ["pacing", "think"])
@pytest.mark.parametrize("whose", ["class", "run"])
def test_pauses_beside_a_rate_are_refused_by_their_name(field: str, whose: str) -> None:
    of_class, given = ({field: "1s", "rate": "10/s"}, {}) if whose == "class" else ({}, {field: "1s", "rate": "10/s"})

    with pytest.raises(InvalidInput, match=rf"^Shop\.{field}: needs a number of users"):
        planned(made(**of_class), **given)


def test_stages_replace_the_duration_of_the_class() -> None:
    plan = planned(made(duration="1m"), stages="1s:5,2s:0")["Shop"]

    assert (plan.duration_s, plan.most_users) == (3.0, 5)


def test_stages_of_rates_are_an_open_model() -> None:
    plan = planned(made(stages=[("1s", "100/s"), ("1s", "0/s")]))["Shop"]

    assert plan.model == "open"
    assert plan.arrivals is not None
    assert plan.arrivals.area(2) == 100


def test_iterations_have_no_end_in_time_unless_one_is_given() -> None:
    assert planned(made(iterations=5))["Shop"].duration_s is None
    assert planned(made(iterations=5, duration="3s"))["Shop"].duration_s == 3
    assert planned(made(iterations=5), duration="4s")["Shop"].duration_s == 4
    assert plan_of({"Shop": made(iterations=5)}, LoadOptions()).duration_s is None


def test_an_end_in_time_can_be_inherited() -> None:
    base = type("Base", (Workflow,), {"duration": "3s"})

    assert planned(made(base=base, iterations=5))["Shop"].duration_s == 3


def test_there_are_no_more_users_than_iterations() -> None:
    assert planned(made(iterations=3, vus=10))["Shop"].most_users == 3


def test_an_open_model_has_ten_seconds_of_arrivals_under_way_at_most() -> None:
    assert planned(made(rate="50/s"))["Shop"].max_in_flight == 500
    assert planned(made(rate="1/s"))["Shop"].max_in_flight == 100
    assert planned(made(rate="9000/s"))["Shop"].max_in_flight == 10_000
    assert planned(made(rate="9000/s", max_in_flight=7))["Shop"].max_in_flight == 7


def test_users_iterations_and_rates_are_divided_by_weight() -> None:
    users = planned(made("A", vus=10, weight=3), made("B", vus=10, weight=1))
    assert (users["A"].most_users, users["B"].most_users) == (8, 2)

    rates = planned(made("A", rate="100/s", weight=3), made("B", rate="100/s", weight=1))
    assert [plan.arrivals.highest for plan in rates.values() if plan.arrivals] == [75, 25]
    assert [plan.max_in_flight for plan in rates.values()] == [750, 250]

    few = planned(made("A", vus=1, iterations=8, weight=3), made("B", vus=1, iterations=8, weight=1))
    assert [(plan.iterations, plan.most_users) for plan in few.values()] == [(6, 1), (2, 1)]


def test_a_submission_is_divided_by_weight_as_well() -> None:
    users = planned(made("A", weight=1), made("B", weight=1), vus=9)

    assert [plan.most_users for plan in users.values()] == [5, 4]


def test_a_workflow_without_a_weight_has_its_own() -> None:
    users = planned(made("A", vus=4, weight=1), made("B", vus=4, weight=1), made("C", vus=4))

    assert [plan.most_users for plan in users.values()] == [2, 2, 4]


@pytest.mark.parametrize("weight", [0, -1, "much", math.nan, math.inf, 5e-324, 1e308])
def test_a_weight_is_a_number(weight: Any) -> None:
    with pytest.raises(InvalidInput, match=r"A.weight: .* is not a weight; write a number above 0"):
        planned(made("A", weight=weight), made("B", weight=1))
    with pytest.raises(InvalidInput, match="not a weight"):
        planned(made("A", weight=weight))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"vus": 1}, "1 user; each workflow gets one with 4 users"),
        ({"stages": "1s:2,1s:0"}, "2 users; each workflow gets one with 4 users"),
        ({"iterations": 1, "vus": 9}, "1 iteration; each workflow gets one with 4 iterations"),
    ],
)
def test_a_workflow_whose_weight_leaves_it_nothing_to_do_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=f"B.weight: 1 of 4 is too small a share of {says}"):
        planned(made("A", weight=3), made("B", weight=1), **options)


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=5), st.integers(1, 50))
def test_as_many_users_as_a_refusal_says_are_enough(weights: list[float], vus: int) -> None:
    workflows = [made(f"W{number}", weight=weight) for number, weight in enumerate(weights)]
    try:
        plans = planned(*workflows, vus=vus)
    except InvalidInput as error:
        plans = planned(*workflows, vus=int(error.rule.rpartition(" with ")[2].split()[0].replace(",", "")))

    assert min(plan.most_users for plan in plans.values()) >= 1


def test_only_some_are_run_with_what_they_depend_on() -> None:
    first, second, third = made("First"), depends("First")(made("Second")), made("Third")

    plan = plan_of({one.__name__: one for one in (first, second, third)}, LoadOptions(workflows=("Second",)))

    assert plan.graph.layers() == [("First",), ("Second",)]
    assert plan.duration_s == 20


def test_a_workflow_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"workflows: unknown workflow 'Shopp'; did you mean 'Shop'\?"):
        planned(made(), workflows=("Shopp",))


def test_workflows_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"workflows wait for each other: A -> B -> A"):
        planned(depends("B")(made("A")), depends("A")(made("B")))


def test_a_dependency_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match="comes after the unknown workflow 'Login'"):
        planned(depends("Login")(made("A")))


def test_what_its_base_depends_on_is_not_inherited() -> None:
    base = depends("Login")(made("Base"))

    assert made("Shop", base).__depends__ == ()


@pytest.mark.parametrize("amount", [{"rate": "5/s"}, {"stages": "1s:5"}, {"stages": "1s:5/s"}])
def test_a_number_of_users_beside_a_rate_or_stages_is_refused(amount: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="vus: users and (a rate|stages) are both given"):
        plan_of({"Shop": made()}, LoadOptions(vus=3, **amount))


def test_values_of_a_class_that_have_no_effect_are_noted() -> None:
    both, paced = made("Both", vus=3, rate="5/s"), made("Paced", think="1s", pacing="2s")

    assert plan_of({"Both": both}, LoadOptions()).notes == ("Both.vus has no effect: the load follows Both.rate",)
    assert plan_of({"Both": both}, LoadOptions(vus=3)).notes == ()
    assert plan_of({"Both": both}, LoadOptions(rate="9/s")).notes == ()
    assert [note.split(":")[0] for note in plan_of({"Paced": paced}, LoadOptions(rate="9/s")).notes] == [
        "Paced.think has no effect",
        "Paced.pacing has no effect",
    ]
    assert plan_of({"Paced": paced}, LoadOptions(stages="1s:9")).notes == ()


@pytest.mark.parametrize(
    ("options", "processes", "note"),
    [
        ({"vus": 2, "processes": 500}, 2, "2 of 500 processes are started: there are no more users"),
        ({"iterations": 3, "vus": 9, "processes": 4}, 3, "3 of 4 processes are started: there are no more users"),
        ({"vus": 50, "processes": 5}, 5, "5 generator processes share 2 cores: they wait for each other"),
        ({"vus": 50, "processes": 4}, 4, ""),
    ],
)
def test_processes_that_have_nothing_to_do_are_not_started_and_a_crowd_of_them_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], processes: int, note: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)

    planned = PlannedRun(written(tmp_path, GET), LoadOptions(**options))

    assert planned.processes == processes
    assert [one for one in planned.notes if note in one] == planned.notes
    assert bool(planned.notes) == bool(note)
