"""Numbers by tag: of all steps that have it, added up."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mainstay.errors import InvalidInput
from mainstay.load.stats.grammar import parse
from mainstay.load.stats.histogram import Histogram
from mainstay.load.stats.model import CheckStats, Header, MetricStats, TagSummary
from mainstay.load.stats.tags import groups_of, tagged, tags_of, tags_text
from mainstay.load.stats.tally import RunTally, from_json, to_json
from mainstay.load.stats.thresholds import ThresholdJudge, check, threshold
from tests.load.stats.made import header, step, window


@pytest.fixture
def tagged_header() -> Header:
    """cart and pay belong to the checkout, and everything to one team; look has another."""
    found = header(steps=("look", "cart", "pay"))
    found.workflows[0]["tags"] = {"team": "north"}
    look, cart, pay = found.workflows[0]["steps"]
    look["tags"] = {"team": "south"}
    cart["tags"] = {"area": "checkout", "weight": 5}
    pay["tags"] = {"area": "checkout"}
    found.workflows[0]["steps"] += [
        {"name": "whole", "kind": "check", "tags": {"area": "checkout"}},
        {"name": "note", "kind": "action", "tags": {"area": "notes"}},
    ]
    return found


def summed(of: Header, *windows: object) -> dict[tuple[str, str], TagSummary]:
    tally = RunTally(of)
    for one in windows:
        tally.add(one)  # type: ignore[arg-type]
    return {(one.tag, one.value): one for one in tally.summary(elapsed_s=2.0).by_tag}


# which steps --------------------------------------------------------------------------------------------


def test_a_step_has_the_tags_of_its_workflow_unless_it_says_otherwise(tagged_header: Header) -> None:
    found = tags_of(tagged_header)

    assert found["Shop", "look"] == {"team": "south"}
    assert found["Shop", "cart"] == {"team": "north", "area": "checkout", "weight": "5"}


def test_all_tags_that_are_wanted_must_be_there(tagged_header: Header) -> None:
    both = (("area", "checkout"), ("weight", "5"))

    assert tagged(tagged_header, both) == {("Shop", "cart")}
    assert tagged(tagged_header, (("area", "nowhere"),)) == frozenset()


def test_steps_without_tags_make_no_groups() -> None:
    assert groups_of(header()) == {}
    assert summed(header(), window(0, step(ok=(0.1,)))) == {}


# numbers ------------------------------------------------------------------------------------------------


def test_steps_that_have_a_tag_are_added_up(tagged_header: Header) -> None:
    found = summed(
        tagged_header,
        window(0, step("look", ok=(0.5,)), step("cart", ok=(0.1,) * 98), step("pay", ok=(0.2,), failed=(0.9,))),
    )

    one = found["area", "checkout"]
    assert (one.requests, one.failed, one.rate, one.errors) == (100, 1, 50.0, {"status": 1})
    assert one.steps == ["Shop.cart", "Shop.pay"]
    assert one.service.max == 0.9
    assert found["team", "south"].requests == 1
    assert list(found) == [("area", "checkout"), ("team", "north"), ("team", "south"), ("weight", "5")]


def test_what_raised_without_a_request_is_in_the_numbers_of_its_tags(tagged_header: Header) -> None:
    broken = step("cart", ok=(0.1,) * 3)
    broken.errors = {"LookupError": 1}

    one = summed(tagged_header, window(0, broken))["area", "checkout"]

    assert (one.requests, one.failed, one.raised, one.error_rate) == (3, 0, 1, 0.25)


_TIMES = st.lists(st.floats(0.0001, 60.0), max_size=30).map(tuple)


@given(_TIMES, _TIMES)
def test_percentiles_by_tag_are_those_of_all_values_together(cart: tuple[float, ...], pay: tuple[float, ...]) -> None:
    of = header(steps=("cart", "pay"))
    for one in of.workflows[0]["steps"]:
        one["tags"] = {"area": "checkout"}

    found = summed(of, window(0, step("cart", ok=cart)), window(25, step("pay", ok=pay)))

    made = [one for one in (step(ok=cart).ok, step(ok=pay).ok) if one is not None]
    if not made:
        assert found == {}
    else:
        assert found["area", "checkout"].service == Histogram(made).latency()


def test_numbers_by_tag_are_in_the_json(tagged_header: Header) -> None:
    tally = RunTally(tagged_header)
    tally.add(window(0, step("cart", ok=(0.1,))))
    summary = tally.summary()

    assert from_json(to_json(summary)).by_tag == summary.by_tag != []


# thresholds ---------------------------------------------------------------------------------------------


def outcome(text: str, of: Header, *windows: object) -> tuple[bool, str]:
    judge = ThresholdJudge([parse(text)], of)
    for one in windows:
        judge.add(one)  # type: ignore[arg-type]
    (found,) = judge.finish()
    return found.passed, found.shown


@pytest.mark.parametrize(
    ("text", "passed", "shown"),
    [
        ("p50 of {area:checkout} < 150ms", True, "100 ms"),
        ("max of {area:checkout, weight:5} < 150ms", True, "100 ms"),
        ("max of {area:checkout} < 150ms", False, "200 ms"),
        ("requests of {team:south} == 7", True, "7"),
        ("error rate of {area:checkout} < 10%", True, "8.33 %"),
        ("checks of {area:checkout} > 50%", True, "75 %"),
        ("trend cart p95 of {shop:north} < 6", True, "5"),
        ("counter orders of {shop:south} == 2", True, "2"),
        ("counter orders == 5", True, "5"),
        ("counter orders of {shop:nowhere} == 0", True, "0"),
    ],
)
def test_a_threshold_can_be_about_a_tag(tagged_header: Header, text: str, passed: bool, shown: str) -> None:
    made = window(0, step("look", ok=(0.5,) * 7), step("cart", ok=(0.1,) * 10), step("pay", ok=(0.2,), failed=(0.2,)))
    made.checks = [CheckStats(workflow="Shop", step="whole", passed=3, failed=1)]
    made.metrics = [
        MetricStats(name="orders", type="counter", tags={"shop": "north"}, total=3, count=3),
        MetricStats(name="orders", type="counter", tags={"shop": "south", "floor": "1"}, total=2, count=2),
        MetricStats(name="cart", type="trend", tags={"shop": "north"}, total=5, count=1, values=step(ok=(5.0,)).ok),
        MetricStats(name="cart", type="trend", tags={"shop": "south"}, total=9, count=1, values=step(ok=(9.0,)).ok),
    ]
    check([parse(text)], tagged_header)

    assert outcome(text, tagged_header, made) == (passed, shown)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("p95 of {area:checkout}<200ms", "p95 of {area:checkout} < 200ms"),
        ("p95 OF { b = 2 , a : 'x y' } < 1s for 10s", "p95 of {a:'x y', b:2} < 1s for 10s"),
        ('rate hit of {"it\'s":1} > 90%', 'rate hit of {"it\'s":1} > 90%'),
        ("rate of {a:b} > 5/s, stop as failed", "rate of {a:b} > 5/s, stop as failed"),
    ],
)
def test_tags_are_written_in_braces(text: str, written: str) -> None:
    assert str(parse(text)) == written
    assert parse(written) == parse(text)


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("p95 of { < 1s", 9, "the name of a tag, like {area:checkout}"),
        ("p95 of {area} < 1s", 12, "':' and the value of the tag"),
        ("p95 of {area:} < 1s", 13, "the value of the tag"),
        ("p95 of {area:a < 1s", 15, "'}', or ',' and another tag"),
        ("users of {area:a} < 1", 6, "a comparison; users has no steps"),
        ("counter orders of browse < 1", 15, "counter orders has no steps but may have tags: of {shop:north}"),
    ],
)
def test_tags_that_cannot_be_read_are_pointed_at(text: str, at: int, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(text)

    first, _, mark = str(refused.value).split("\n")
    assert said in first
    assert mark == "  " + " " * at + "^"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p95 of {area:chekout} < 1s", "no measured step has the tags {area:chekout}; did you mean {area:checkout}?"),
        ("p95 of {x:y} < 1s", "known tags: {area:checkout}, {area:notes}, {team:north}, {team:south}, {weight:5}"),
        ("checks of {weight:5} > 9%", "no check has the tags {weight:5}"),
    ],
)
def test_tags_that_no_step_has_are_refused(tagged_header: Header, text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check([parse(text)], tagged_header)

    assert said in str(refused.value)


def test_parts_make_the_same_threshold_as_text() -> None:
    assert threshold("p95", tags={"b": "x y", "a": "1"}, below="1s") == parse("p95 of {a:1, b:'x y'} < 1s")
    with pytest.raises(InvalidInput, match="takes one of of and tags"):
        threshold("p95", of="browse", tags={"a": "1"}, below="1s")


@given(st.dictionaries(st.text("ab :'{},=", min_size=1), st.text('ab :"{},=', min_size=1), min_size=1, max_size=3))
def test_any_tags_that_can_be_quoted_can_be_written_and_read(tags: dict[str, str]) -> None:
    written = f"p95 of {tags_text(tags.items())} < 1s"

    assert dict(parse(written).tags) == tags
