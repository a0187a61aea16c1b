"""A virtual user goes through its steps in their order, whatever the order is."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import time
import weakref
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from mainstay.errors import CallFailed
from mainstay.load.engine.user import StopSignal
from mainstay.load.hooks import Check, Counter, Metric, Trend, step
from mainstay.load.prepared import URL, Headers
from mainstay.load.results import CustomResult, Result
from mainstay.load.workflow import Workflow
from tests.load.engine.walking import Walk, turns, workflow_of
from tests.load.test_graph import orders


def beyond(after: dict[str, list[str]], broken: set[str]) -> set[str]:
    """What comes after those, directly or not."""
    found: set[str] = set()
    while more := {name for name, before in after.items() if name not in found and (found | broken) & set(before)}:
        found |= more
    return found


@settings(max_examples=50)
@given(orders())
def test_a_step_begins_when_all_that_it_comes_after_are_done_and_not_later(after: dict[str, list[str]]) -> None:
    running: set[str] = set()
    done: set[str] = set()
    seen: list[str] = []

    async def does(name: str, _: Any) -> str:
        assert set(after[name]) <= done
        running.add(name)
        await turns()
        # everything that could run beside this does, or did: nothing waits for its turn
        ready = {other for other, before in after.items() if set(before) <= done}
        assert ready <= running | done
        await turns()
        running.discard(name)
        done.add(name)
        seen.append(name)
        return name

    async def main() -> None:
        walk = Walk(workflow_of(after, does))
        for _ in range(2):
            done.clear()
            seen.clear()
            await walk.iterate()
            assert sorted(seen) == sorted(after)
        assert (walk.notes.iterations, walk.notes.clean) == (2, 2)
        assert not walk.errors()

    asyncio.run(main())


@settings(max_examples=50)
@given(orders(), st.data())
def test_what_raises_skips_exactly_what_comes_after_it_and_the_user_goes_on(
    after: dict[str, list[str]], data: st.DataObject
) -> None:
    broken = set(data.draw(st.lists(st.sampled_from(sorted(after)), unique=True)))
    called: list[str] = []

    async def does(name: str, _: Any) -> str:
        called.append(name)
        await turns(data.draw(st.integers(0, 2)))
        if name in broken:
            raise LookupError(name)
        return name

    async def main() -> None:
        walk = Walk(workflow_of(after, does))
        await walk.iterate()
        skipped = beyond(after, broken)
        assert sorted(called) == sorted(set(after) - skipped)
        assert walk.skipped == dict.fromkeys(skipped, 1)
        assert walk.errors() == {name: {"LookupError": 1} for name in broken - skipped}
        assert (walk.notes.iterations, walk.notes.clean) == (1, 0 if broken else 1)
        broken.clear()
        called.clear()
        await walk.iterate()
        assert sorted(called) == sorted(after)

    asyncio.run(main())


@settings(max_examples=50)
@given(orders())
def test_results_reach_later_steps_by_name_and_not_the_next_iteration(after: dict[str, list[str]]) -> None:
    round_ = 0

    async def does(name: str, given_: dict[str, Any]) -> tuple[str, int]:
        me = given_.pop("self")
        assert given_ == {one: (one, round_) for one in after[name]}
        await turns(1)
        assert all(value[1] == round_ for value in me.context.values())
        return name, round_

    async def main() -> None:
        nonlocal round_
        walk = Walk(workflow_of(after, does))
        for round_ in range(3):
            await walk.iterate()
            assert walk.me.context == {name: (name, round_) for name in after}
        assert not walk.errors()

    asyncio.run(main())


async def test_a_prepared_argument_wins_over_the_context_which_wins_over_a_default() -> None:
    class Shop(Workflow):
        seen: Any = None

        @step()
        async def url(self) -> str:
            return "from the step"

        @step("url")
        async def browse(self, url: URL = "http://127.0.0.1/", token: str = "default", word: str = "default") -> None:
            type(self).seen = (str(url), token, word)

    await Walk(Shop, {"token": "shared"}).iterate()

    assert Shop.seen == ("http://127.0.0.1/", "shared", "default")


async def test_what_is_shared_is_there_again_in_each_iteration() -> None:
    seen = []

    class Shop(Workflow):
        @step()
        async def browse(self) -> None:
            seen.append(dict(self.context))
            self.context["shared"] = self.context["own"] = "changed"

    walk = Walk(Shop, {"shared": 1})
    await walk.iterate()
    await walk.iterate()

    assert seen == [{"shared": 1}, {"shared": 1}]


async def test_steps_in_a_row_need_no_task() -> None:
    tasks = set()

    class Shop(Workflow):
        @step()
        async def first(self) -> None:
            tasks.add(asyncio.current_task())

        @step("first")
        async def second(self) -> None:
            tasks.add(asyncio.current_task())

    await Walk(Shop).iterate()

    assert tasks == {asyncio.current_task()}


@pytest.mark.parametrize("after", [{"a": [], "b": ["a"]}, {"a": [], "b": ["a"], "c": ["a"]}, {"a": [], "b": []}])
async def test_an_iteration_leaves_nothing_to_the_garbage_collector(after: dict[str, list[str]]) -> None:
    class Answer:
        pass

    made: list[weakref.ref[Answer]] = []

    async def does(_name: str, _given: dict[str, Any]) -> Answer:
        await asyncio.sleep(0)
        answer = Answer()
        made.append(weakref.ref(answer))
        return answer

    walk = Walk(workflow_of(after, does))
    gc.disable()
    try:
        await walk.iterate()
        walk.me.context = {}
    finally:
        gc.enable()

    assert [one() for one in made] == [None] * len(after)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
async def test_a_step_that_wants_to_leave_the_program_is_an_error_like_any_other(error: BaseException) -> None:
    class Shop(Workflow):
        @step()
        async def leave(self) -> None:
            raise error

        @step("leave")
        async def after(self) -> None: ...

    walk = Walk(Shop)
    await walk.iterate()
    await walk.iterate()

    assert walk.errors()["leave"] == {type(error).__name__: 2}
    assert walk.notes.iterations == 2


async def test_steps_beside_each_other_that_leave_the_program_are_errors_as_well() -> None:
    class Shop(Workflow):
        @step()
        async def one(self) -> None:
            await asyncio.sleep(0)
            sys.exit(1)

        @step()
        async def other(self) -> None:
            await asyncio.sleep(0)
            raise KeyboardInterrupt

    walk = Walk(Shop)
    await walk.iterate()

    assert walk.errors() == {"one": {"SystemExit": 1}, "other": {"KeyboardInterrupt": 1}}


async def test_a_user_that_is_given_up_ends_all_its_steps() -> None:
    ended = []

    async def does(name: str, _: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    walk = Walk(workflow_of({"a": [], "b": [], "c": []}, does))
    task = asyncio.ensure_future(walk.iterate())
    await turns(5)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

    assert sorted(ended) == ["a", "b", "c"]
    assert (walk.notes.begun, walk.notes.iterations, walk.notes.aborted) == (1, 0, 1)
    assert walk.errors() == {}


@pytest.mark.parametrize("after", [{"a": [], "b": ["a"]}, {"a": [], "b": ["a"], "c": ["a"]}])
async def test_a_hurried_stop_ends_after_the_steps_under_way_and_the_iteration_does_not_count(
    after: dict[str, list[str]],
) -> None:
    called = []

    async def does(name: str, given_: Any) -> None:
        called.append(name)
        walk.stop.end(hurry=True)

    walk = Walk(workflow_of(after, does))
    await walk.iterate()

    assert called == ["a"]
    assert (walk.notes.iterations, walk.skipped) == (0, {})
    assert (walk.notes.begun, walk.notes.aborted) == (1, 1)


async def test_a_stop_without_hurry_lets_the_iteration_come_to_its_end() -> None:
    called = []

    async def does(name: str, given_: Any) -> None:
        called.append(name)
        walk.stop.end(hurry=False)

    walk = Walk(workflow_of({"a": [], "b": ["a"]}, does))
    await walk.iterate()

    assert called == ["a", "b"]
    assert walk.notes.iterations == 1


def _result(seconds: float, *, failure: str = "") -> CustomResult:
    now = time.perf_counter()
    return CustomResult(started=now - seconds, ended=now, status="done", failure=failure)


async def test_only_what_a_measured_step_returns_is_measured() -> None:
    class Shop(Workflow):
        @step()
        async def browse(self) -> Result | None:
            await asyncio.sleep(0.02)
            _result(5)
            return None if self.vu.iteration else _result(0.5)

    walk = Walk(Shop)
    await walk.iterate()
    await walk.iterate()

    stats = walk.notes.steps["browse"].take()
    assert stats is not None
    assert stats.ok is not None
    assert stats.ok.count == 1
    assert stats.ok.high == pytest.approx(0.5)
    assert stats.statuses == {"done": 1}


async def test_a_call_that_fails_is_counted_by_its_kind() -> None:
    class Shop(Workflow):
        @step()
        async def browse(self) -> Result:
            raise CallFailed("connect", "refused")

    walk = Walk(Shop)
    await walk.iterate()

    assert walk.errors() == {"browse": {"connect": 1}}
    assert walk.notes.examples == {"connect": "CallFailed: refused"}


@pytest.mark.parametrize(
    "made",
    [
        lambda: 5,
        lambda: CustomResult(started=2.0, ended=1.0),
        lambda: CustomResult(started=float("nan"), ended=1.0),
        lambda: CustomResult(started=None, ended=1.0),
    ],
)
async def test_a_result_that_is_none_is_an_error_and_spoils_no_other(made: Any) -> None:
    class Shop(Workflow):
        @step()
        async def browse(self) -> Result:
            return made() if self.vu.iteration == 1 else _result(0.1)

    walk = Walk(Shop)
    for _ in range(3):
        await walk.iterate()

    stats = walk.notes.steps["browse"].take()
    assert stats is not None
    assert stats.ok is not None
    assert (stats.ok.count, sum(stats.errors.values())) == (2, 1)
    assert stats.ok.high == pytest.approx(0.1)


async def test_a_result_that_was_spoilt_later_is_an_error_and_spoils_no_other() -> None:
    class Shop(Workflow):
        @step()
        async def browse(self) -> Result:
            found = _result(0.1)
            if self.vu.iteration == 1:
                found.first = None  # type: ignore[assignment] # what a mistake would do
            return found

    walk = Walk(Shop)
    for _ in range(3):
        await walk.iterate()

    stats = walk.notes.steps["browse"].take()
    assert stats is not None
    assert stats.ok is not None
    assert (stats.ok.count, stats.errors) == (2, {"TypeError": 1})


async def test_checks_are_counted_and_stop_nothing() -> None:
    called = []

    class Shop(Workflow):
        @step()
        async def one(self) -> Check:
            return Check(False, "must be there")

        @step("one")
        async def some(self) -> list[Check]:
            return [Check(True), Check(False, "second")]

        @step("some")
        async def old(self) -> Exception | None:
            return ValueError("bad") if self.vu.iteration else None

        @step("old")
        async def after(self) -> None:
            called.append(1)

    walk = Walk(Shop)
    await walk.iterate()
    await walk.iterate()

    found = {name: check.take() for name, check in walk.notes.checks.items()}
    assert {name: (one.passed, one.failed, one.reasons) for name, one in found.items() if one is not None} == {
        "one": (0, 2, {"must be there": 2}),
        "some": (2, 2, {"second": 2}),
        "old": (1, 1, {"ValueError: bad": 1}),
    }
    assert len(called) == 2


@pytest.mark.parametrize("returns", [Check, list[Check], Exception | None, Metric[Counter], Result, None, str])
async def test_a_step_that_raises_is_an_error_of_its_type_whatever_it_is_for(returns: Any) -> None:
    async def act(self: Workflow) -> Any:
        raise KeyError("cart")

    act.__annotations__["return"] = returns
    walk = Walk(type("Shop", (Workflow,), {"act": step()(act)}))
    await walk.iterate()

    assert walk.errors() == {"act": {"KeyError": 1}}
    assert walk.notes.examples == {"KeyError": "KeyError: 'cart'"}
    assert (walk.notes.iterations, walk.notes.clean) == (1, 0)


async def test_a_check_that_raises_has_failed_and_says_why() -> None:
    class Shop(Workflow):
        @step()
        async def one(self) -> Check:
            raise AssertionError("no title")

    walk = Walk(Shop)
    await walk.iterate()

    found = walk.notes.checks["one"].take()
    assert found is not None
    assert (found.failed, found.reasons) == (1, {"AssertionError: no title": 1})


async def test_metrics_are_recorded_by_what_their_annotation_says() -> None:
    class Shop(Workflow):
        @step()
        async def sold(self) -> Metric[Counter]:
            return Metric(2, tags={"shop": "north"})

        @step()
        async def basket(self) -> Metric[Trend]:
            self.gauge("users", 7)
            return 12.5  # type: ignore[return-value] # a plain number does

    walk = Walk(Shop)
    await walk.iterate()
    await walk.iterate()

    found = {one.name: (one.type, one.tags, one.total, one.count) for one in walk.metrics.take()}
    assert found == {
        "sold": ("counter", {"shop": "north"}, 4, 2),
        "basket": ("trend", {}, 25, 2),
        "users": ("gauge", {}, 7, 2),
    }


async def test_tags_that_are_never_the_same_end_in_errors_and_spoil_no_other_metric() -> None:
    class Shop(Workflow):
        @step()
        async def known(self) -> None:
            self.count("known")

        @step("known")
        async def many(self) -> None:
            self.count("many", tags={"id": str(self.vu.iteration)})

    walk = Walk(Shop)
    for _ in range(1100):
        await walk.iterate()
    walk.metrics.take()
    await walk.iterate()

    assert walk.errors() == {"many": {"InvalidInput": 102}}
    assert [one.name for one in walk.metrics.take()] == ["known"]


async def test_headers_are_made_once() -> None:
    seen = set()

    class Shop(Workflow):
        @step()
        async def browse(self, headers: Headers = {"X-Tenant": "blue"}) -> None:  # noqa: B006 - never changed
            seen.add(id(headers))

    walk = Walk(Shop)
    await walk.iterate()
    await walk.iterate()

    assert len(seen) == 1


async def test_a_forgotten_return_is_an_error_and_no_silent_pass() -> None:
    class Shop(Workflow):
        @step()
        async def browse(self) -> Result:  # type: ignore[return]
            _result(0.1)  # that the return is forgotten is the point

        @step()
        async def title(self) -> Check:  # type: ignore[return]
            Check(False, "no title")

        @step()
        async def wrong(self) -> Exception | None:
            return None

    walk = Walk(Shop)
    await walk.iterate()

    assert walk.errors() == {"browse": {"InvalidInput": 1}}
    assert "returned nothing" in walk.notes.examples["InvalidInput"]
    title, wrong = walk.notes.checks["title"].take(), walk.notes.checks["wrong"].take()
    assert title is not None
    assert wrong is not None
    assert (title.failed, wrong.passed) == (1, 1)


async def test_a_step_that_does_not_say_what_it_returns_must_return_nothing_that_counts() -> None:
    class Shop(Workflow):
        @step()
        async def browse(self):  # type: ignore[no-untyped-def]
            return Result(started=1.0, ended=2.0)

        @step("browse")
        async def never(self): ...  # type: ignore[no-untyped-def]

    class Fine(Workflow):
        @step()
        async def act(self):  # type: ignore[no-untyped-def]
            return {"id": 7}

        @step()
        async def left_out(self) -> object:
            return Result(started=1.0, ended=2.0)

    walk, fine = Walk(Shop), Walk(Fine)
    await walk.iterate()
    await fine.iterate()

    assert walk.errors() == {"browse": {"InvalidInput": 1}}
    assert (
        "browse: returned a Result, which counts if the step is annotated: -> Result"
        in (walk.notes.examples["InvalidInput"])
    )
    assert (walk.notes.clean, fine.notes.clean) == (0, 1)


async def test_a_pause_is_never_too_short_though_timers_ring_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of uvloop count whole milliseconds."""
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def early(delay: float, *what: Any) -> asyncio.TimerHandle:
        return call_later(delay / 2, *what)

    monkeypatch.setattr(loop, "call_later", early)
    began = time.perf_counter()
    await StopSignal().pause(0.02)

    assert time.perf_counter() - began >= 0.02


async def test_a_pause_ends_with_the_run() -> None:
    stop = StopSignal()
    waiting = asyncio.create_task(stop.pause(3600))
    await turns()
    stop.end(hurry=False)
    await waiting
    await stop.pause(3600)


def took(seconds: float) -> CustomResult:
    return CustomResult(started=1.0, ended=1.0 + seconds, failure="" if seconds < 1 else "slow")


@pytest.mark.parametrize(
    ("hint", "returned"),
    [
        (list[Result], [took(0.1), took(2.0)]),
        (tuple[Result, Result], (took(0.1), took(2.0))),
        (dict[str, Result], {"a": took(0.1), "b": took(2.0)}),
        (list[Result | None], [took(0.1), None, took(2.0)]),
    ],
)
def test_each_of_several_responses_is_measured(hint: Any, returned: Any) -> None:
    async def many(self: object) -> Any:
        return returned

    many.__annotations__["return"] = hint
    walk = Walk(type("Made", (Workflow,), {"many": step()(many)}))

    asyncio.run(walk.iterate())

    found = walk.notes.steps["many"].take()
    assert found is not None
    assert found.ok is not None
    assert found.failed is not None
    assert (found.ok.count, found.failed.count, found.errors) == (1, 1, {"slow": 1})


@pytest.mark.parametrize("hint", [None, Any, list, dict])
@pytest.mark.parametrize("returned", [took(0.1), [1, took(0.1)], (took(0.1),), {"a": took(0.1)}, [Check(True)]])
def test_what_would_count_and_is_not_annotated_so_is_an_error(hint: Any, returned: Any) -> None:
    async def act(self: object) -> Any:
        return returned

    act.__annotations__["return"] = hint
    walk = Walk(type("Made", (Workflow,), {"act": step()(act)}))

    asyncio.run(walk.iterate())

    assert walk.errors() == {"act": {"InvalidInput": 1}}
    assert "which counts if the step is annotated: -> " in walk.notes.examples["InvalidInput"]


async def answered(seconds: float = 0.001, *, failure: str = "") -> CustomResult:
    """A call that has just been answered."""
    now = time.perf_counter()
    return CustomResult(started=now, ended=now + seconds, failure=failure)


async def checked() -> Result:
    answer = await answered()
    raise LookupError(answer.elapsed)


class Answers(Workflow):
    """Steps that raise after one or more answers."""

    @step()
    async def own(self) -> Result:
        answer = await answered()
        assert answer.elapsed > 1, "too fast"
        return answer

    @step()
    async def last_of_two(self) -> Result:
        first = await answered(0.001)
        second = await answered(0.5)
        raise LookupError(first, second)

    @step()
    async def helper(self) -> Result:
        return await checked()

    @step()
    async def other_error(self) -> Result:
        try:
            return await checked()
        except LookupError as error:
            raise ValueError from error

    @step()
    async def grouped(self) -> Result:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(checked())
        return task.result()

    @step()
    async def failed_too(self) -> Result:
        answer = await answered(failure="http 500")
        raise LookupError(answer)

    @step()
    async def several(self) -> list[Result]:
        answers = [await answered(), await answered(failure="http 500")]
        raise LookupError(len(answers))


@pytest.mark.parametrize(
    ("name", "ok", "failed", "errors", "after_failed"),
    [
        ("own", 1, 0, {"AssertionError": 1}, 0),
        ("last_of_two", 1, 0, {"LookupError": 1}, 0),
        ("helper", 1, 0, {"LookupError": 1}, 0),
        ("other_error", 1, 0, {"ValueError": 1}, 0),
        ("grouped", 1, 0, {"ExceptionGroup": 1}, 0),
        ("failed_too", 0, 1, {"LookupError": 1, "http 500": 1}, 1),
        ("several", 1, 1, {"LookupError": 1, "http 500": 1}, 1),
    ],
)
async def test_a_step_that_raises_after_its_answer_keeps_the_request_and_counts_what_was_raised(
    name: str, ok: int, failed: int, errors: dict[str, int], after_failed: int
) -> None:
    walk = Walk(Answers)
    await walk.iterate()

    found = walk.notes.steps[name].take()
    assert found is not None
    assert (found.ok.count if found.ok else 0, found.failed.count if found.failed else 0) == (ok, failed)
    assert (found.errors, found.raised_after, found.raised_after_failed) == (errors, 1, after_failed)
    if name == "last_of_two":
        assert found.ok is not None
        assert found.ok.high > 0.4


async def test_an_answer_that_a_step_was_given_is_not_its_own_when_it_raises() -> None:
    class Shop(Workflow):
        @step()
        async def first(self) -> Result:
            return await answered()

        @step("first")
        async def second(self, first: Result) -> Result:
            raise LookupError(first)

    walk = Walk(Shop)
    await walk.iterate()

    found = walk.notes.steps["second"].take()
    assert found is not None
    assert (found.ok, found.failed, found.errors, found.raised_after) == (None, None, {"LookupError": 1}, 0)


async def test_a_call_that_fails_after_others_of_a_list_leaves_their_answers() -> None:
    class Shop(Workflow):
        @step()
        async def many(self) -> list[Result]:
            answers = [await answered(), await answered()]
            raise CallFailed("closed", f"after {len(answers)}")

    walk = Walk(Shop)
    await walk.iterate()

    found = walk.notes.steps["many"].take()
    assert found is not None
    assert found.ok is not None
    assert found.failed is not None
    assert (found.ok.count, found.failed.count, found.errors) == (2, 1, {"closed": 1})
