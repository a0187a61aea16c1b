"""What a step is follows from what it is annotated to return."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NewType, Optional, TypeVar, Union

import pytest

from mainstay.errors import InvalidInput
from mainstay.load.blueprint import blueprint_of
from mainstay.load.clients.http import HTTPResponse
from mainstay.load.hooks import Check, Counter, Gauge, Metric, Rate, Trend, step
from mainstay.load.method_roles import signature_of
from mainstay.load.prepared import URL, Data
from mainstay.load.results import CustomResult, Result
from mainstay.load.workflow import Workflow

SHARED = URL("/a")


class Mine(HTTPResponse): ...


class Stored(CustomResult): ...


class Wrong(Exception): ...


def returning(hint: Any) -> Any:
    async def act(self: object) -> None: ...

    act.__annotations__["return"] = hint
    return act


@pytest.mark.parametrize(
    ("hint", "kind", "metric"),
    [
        (HTTPResponse, "measured", None),
        (Mine, "measured", None),
        (Result, "measured", None),
        (Stored, "measured", None),
        (HTTPResponse | None, "measured", None),
        (Optional[Mine], "measured", None),  # noqa: UP045 - as others write it
        (Union[HTTPResponse, Stored], "measured", None),  # noqa: UP007 - as others write it
        ("HTTPResponse | None", "measured", None),
        ("Mine", "measured", None),
        (Metric[Counter], "metric", "counter"),
        (Metric[Gauge], "metric", "gauge"),
        (Metric[Rate], "metric", "rate"),
        ("Metric[Trend]", "metric", "trend"),
        (Metric[Trend] | None, "metric", "trend"),
        (Check, "check", None),
        (list[Check], "check", None),
        (tuple[Check, Check], "check", None),
        (Check | None, "check", None),
        (Exception, "check", None),
        (Exception | None, "check", None),
        ("Wrong | None", "check", None),
        (None, "action", None),
        (dict[str, Any], "action", None),
        (str, "action", None),
        (Any, "action", None),
        (list[HTTPResponse], "measured", None),
        (list[HTTPResponse | None], "measured", None),
        (tuple[HTTPResponse, ...], "measured", None),
        (tuple[HTTPResponse, Stored], "measured", None),
        (dict[str, HTTPResponse], "measured", None),
        (Sequence[HTTPResponse], "measured", None),
        (Mapping[int, Mine], "measured", None),
        (list[HTTPResponse] | None, "measured", None),
        (HTTPResponse | list[HTTPResponse], "measured", None),
        (NewType("Page", HTTPResponse), "measured", None),
        (TypeVar("Some", bound=HTTPResponse), "measured", None),
    ],
)
def test_the_kind_follows_from_the_annotation(hint: Any, kind: str, metric: str | None) -> None:
    told = signature_of(returning(hint), field="Shop.act")

    assert (told.kind, told.metric) == (kind, metric)


@pytest.mark.parametrize(
    "hint",
    [
        tuple[HTTPResponse, str],
        list[list[HTTPResponse]],
        dict[HTTPResponse, str],
        set[HTTPResponse],
        AsyncIterator[HTTPResponse],
        HTTPResponse | list[int],
        dict[str, Check],
        Sequence[Check],
        list[Metric[Counter]],
    ],
)
def test_an_annotation_that_would_count_for_nothing_is_refused(hint: Any) -> None:
    with pytest.raises(InvalidInput, match="is annotated to return"):
        signature_of(returning(hint), field="Shop.act")


def test_a_step_without_an_annotation_is_an_action() -> None:
    async def act(self): ...  # type: ignore[no-untyped-def]

    assert signature_of(act, field="Shop.act").kind == "action"


def test_prepared_arguments_are_found_in_unions_and_not_in_lists() -> None:
    class Shop(Workflow):
        @step()
        async def act(
            self,
            url: URL | None = "http://127.0.0.1/",  # type: ignore[assignment]
            body: Data | None = None,
            others: list[URL] = [],  # noqa: B006 - never changed
        ) -> None: ...

    plan = blueprint_of(Shop).steps["act"]

    assert list(plan.prepared) == ["url"]
    assert plan.taken == ("body", "others")


def test_a_url_that_two_workflows_have_is_joined_to_the_base_of_each() -> None:
    class Shop(Workflow):
        @step()
        async def act(self, url: URL = SHARED) -> None: ...

    class Other(Shop): ...

    one, other = (blueprint_of(cls).steps["act"].prepared["url"] for cls in (Shop, Other))

    assert one is not other


def test_steps_are_inherited_and_can_be_replaced() -> None:
    class Base(Workflow):
        @step()
        async def login(self) -> None: ...

        @step("login")
        async def act(self) -> None: ...

    class Shop(Base):
        @step("login")
        async def act(self) -> Check: ...  # type: ignore[empty-body, override]

    assert Shop.__graph__.after == {"login": (), "act": ("login",)}
    assert blueprint_of(Shop).steps["act"].kind == "check"
    assert blueprint_of(Base).steps["act"].kind == "action"
