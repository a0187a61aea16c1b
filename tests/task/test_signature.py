"""Calls as they are stored: bound by the signature, checked against the annotations, one spelling each."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, strategies as st

from mainstay.control import decoded
from mainstay.errors import BadArguments, InvalidInput
from mainstay.task.signature import Signature


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Order(msgspec.Struct):
    id: int
    lines: list[Point] = []


class Address(TypedDict):
    street: str


class Pair(NamedTuple):
    a: int
    b: str


class Colour(enum.Enum):
    RED = "red"


class Opaque:
    pass


def round_trip(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    signature = Signature(function, "job")
    return signature.call(signature.unpack(signature.pack(args, kwargs)))


def send(to: str, subject: str, *, copies: int = 1) -> tuple[str, str, int]:
    return (to, subject, copies)


def test_positional_and_named_spellings_of_a_call_are_the_same_bytes() -> None:
    signature = Signature(send, "send")

    spellings = [
        signature.pack(("a", "b"), {}),
        signature.pack(("a",), {"subject": "b"}),
        signature.pack((), {"subject": "b", "to": "a"}),
    ]

    assert len(set(spellings)) == 1
    assert decoded(spellings[0]) == {"to": "a", "subject": "b"}


def test_a_default_is_not_stored_and_is_the_functions_own_when_it_runs() -> None:
    stored = Signature(send, "send").pack(("a", "b"), {})

    def later(to: str, subject: str, *, copies: int = 7) -> int:
        return copies

    now = Signature(later, "send")
    assert now.call(now.unpack(stored)) == 7


def test_what_was_asked_for_is_stored_even_when_it_equals_the_default() -> None:
    stored = Signature(send, "send").pack(("a", "b"), {"copies": 1})

    assert decoded(stored) == {"to": "a", "subject": "b", "copies": 1}


def test_mappings_are_stored_in_one_order_whatever_their_keys() -> None:
    def take(by_name: dict[str, int], by_number: dict[int, str], more: int = 0) -> None: ...

    signature = Signature(take, "take")

    one = signature.pack(({"b": 1, "a": 2}, {2: "x", 1: "y"}), {})
    other = signature.pack(({"a": 2, "b": 1}, {1: "y", 2: "x"}), {})

    assert one == other
    assert set(decoded(one)) == {"by_name", "by_number"}
    assert signature.unpack(one).by_number == {1: "y", 2: "x"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Point, Point(1, 2)),
        (Order, Order(7, [Point(1)])),
        (list[Order], [Order(7), Order(8)]),
        (Address, {"street": "High"}),
        (Pair, Pair(1, "b")),
        (Colour, Colour.RED),
        (Literal["a", "b"], "a"),
        (datetime, datetime(2026, 3, 1, 12, tzinfo=UTC)),
        (date, date(2026, 3, 1)),
        (time, time(12, 30)),
        (timedelta, timedelta(minutes=5)),
        (UUID, UUID(int=5)),
        (Decimal, Decimal("1.50")),
        (bytes, b"\x00\xff"),
        (set[int], {1, 2}),
        (frozenset[str], frozenset("ab")),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2, 3)),
        (dict[str, list[int]], {"a": [1]}),
        (dict[int, str], {1: "a"}),
        (Optional[int], None),  # noqa: UP045 - the old spelling is one that people write
        (int | str, "a"),
        (int | None, 5),
        (float, 1.5),
        (Annotated[int, msgspec.Meta(ge=0)], 3),
        (Any, {"free": ["form", 1, None]}),
        (object, [1, "two"]),
        (None, None),
    ],
    ids=lambda value: str(value) if not isinstance(value, set | frozenset) else "set",  # whose order differs by run
)
def test_a_value_of_the_declared_type_arrives_as_it_was(kind: Any, value: Any) -> None:
    def required(value: Any) -> Any:
        return value

    def optional(value: Any = "nothing") -> Any:
        return value

    for function in (required, optional):
        function.__annotations__["value"] = kind
        assert round_trip(function, value) == value
        assert type(round_trip(function, value)) is type(value)


@pytest.mark.parametrize(
    ("args", "kwargs", "complaint"),
    [
        (("a", 7), {}, "mail.send.subject: expected str, got int"),
        ((["a"], "b"), {}, "mail.send.to: expected str, got list"),
        (("a",), {}, "mail.send: missing a required argument: 'subject'; it takes (to, subject, *, copies=...)"),
        (("a", "b", "c"), {}, "mail.send: too many positional arguments"),
        (("a", "b"), {"body": "c"}, "mail.send: got an unexpected keyword argument 'body'"),
        (("a", "b"), {"to": "c"}, "mail.send: multiple values for argument 'to'"),
        (("a", object()), {}, "mail.send.subject: cannot be stored as data: Encoding objects of type object"),
        (("a", "\ud800"), {}, "mail.send.subject: cannot be stored as data"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_with_the_task_and_the_parameter(
    args: tuple[Any, ...], kwargs: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        Signature(send, "mail.send").pack(args, kwargs)

    assert complaint in str(refused.value)


def test_a_wrong_value_deep_inside_is_named_by_its_place() -> None:
    def take(order: Order, limit: Annotated[int, msgspec.Meta(ge=0)] = 0) -> None: ...

    signature = Signature(take, "take")

    with pytest.raises(InvalidInput, match="take.order.lines\\[1\\].x: expected int, got str"):
        signature.pack((Order(1, [Point(1), Point("2")]),), {})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="take.limit: expected int >= 0"):
        signature.pack((Order(1), -1), {})


def test_variable_positional_only_and_named_parameters_arrive_as_python_would_pass_them() -> None:
    def take(a: int, b: int = 2, /, c: int = 3, *rest: int, k: str = "k", **more: int) -> Any:
        return (a, b, c, rest, k, more)

    assert round_trip(take, 1) == (1, 2, 3, (), "k", {})
    assert round_trip(take, 1, c=9) == (1, 2, 9, (), "k", {})
    assert round_trip(take, 1, 5, 6, 7, 8, k="x", a=1, z=2) == (1, 5, 6, (7, 8), "x", {"a": 1, "z": 2})
    with pytest.raises(InvalidInput, match="job.rest\\[0\\]: expected int, got str"):
        round_trip(take, 1, 2, 3, "four")
    with pytest.raises(InvalidInput, match="positional only"):
        round_trip(lambda a, /: a, a=1)


def test_a_default_left_out_before_variable_arguments_keeps_its_place() -> None:
    def before(a: int, *rest: int) -> Any: ...

    def now(a: int, b: int = 5, *rest: int) -> Any:
        return (a, b, rest)

    stored = Signature(before, "job").pack((1, 2, 3), {})

    signature = Signature(now, "job")
    assert signature.call(signature.unpack(stored)) == (1, 5, (2, 3))


def test_parameters_without_annotations_take_any_data() -> None:
    assert round_trip(lambda x, y=None: (x, y), {"a": 1}, y=[2]) == ({"a": 1}, [2])


def test_arguments_by_place_are_given_their_names_when_they_are_read() -> None:
    def odd(a: int, /, b: int, *more: int, c: int = 3, **rest: int) -> tuple[Any, ...]:
        return a, b, more, c, rest

    for args, kwargs in (([1], {"b": 2}), ([1, 2, 4, 5], {"c": 6, "d": 7}), ([1, 2], {})):
        signature = Signature(odd, "odd")
        stored = msgspec.msgpack.encode([args, kwargs])
        assert signature.call(signature.unpack(stored)) == odd(*args, **kwargs)


@pytest.mark.parametrize(
    ("then", "complaint"),
    [
        (lambda: [["a"], {}], "send: missing a required argument: 'subject'; it takes (to, subject, *, copies=...)"),
        (lambda: [["a", 5], {}], "send.subject: expected str, got int"),
        (lambda: [["a"], {"to": "b"}], "send: multiple values for argument 'to'"),
        (lambda: {"to": "a"}, "send.subject: missing"),
        (lambda: {"to": "a", "subject": "b", "body": "c"}, "send.body: not expected"),
        (lambda: {"to": "a", "subject": 5}, "send.subject: expected str, got int"),
        (lambda: [1, 2], "send: expected mapping, got list"),
    ],
)
def test_stored_arguments_that_no_longer_fit_are_told_by_the_field(then: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(BadArguments) as refused:
        Signature(send, "send").unpack(msgspec.msgpack.encode(then()))

    assert complaint in str(refused.value)


def test_bytes_that_are_no_data_are_bad_arguments() -> None:
    with pytest.raises(BadArguments, match="cannot be read"):
        Signature(send, "send").unpack(b"\xc1")


@pytest.mark.parametrize("kind", [Opaque, list[Opaque], dict[str, Opaque], Callable[[], int], complex, Opaque | None])
def test_a_type_that_cannot_be_stored_is_refused_when_the_task_is_made(kind: Any) -> None:
    def take(value: Any) -> None: ...

    take.__annotations__["value"] = kind

    with pytest.raises(InvalidInput, match="take.value: .* cannot be stored as data; use a dataclass"):
        Signature(take, "take")


def test_a_union_that_cannot_be_told_apart_is_refused_when_the_task_is_made() -> None:
    def take(value: Order | Point) -> None: ...

    with pytest.raises(InvalidInput, match="take.value: .* cannot be distinguished"):
        Signature(take, "take")


def test_a_return_type_that_cannot_be_stored_is_refused_when_the_task_is_made() -> None:
    def make() -> Opaque: ...  # type: ignore[empty-body]

    with pytest.raises(InvalidInput, match="make: its return type: Opaque cannot be stored"):
        Signature(make, "make")


def test_an_annotation_nobody_knows_is_refused_with_advice() -> None:
    def take(value: Any) -> None: ...

    take.__annotations__["value"] = "Missing"

    with pytest.raises(InvalidInput, match="take: the name 'Missing' .* import it at the top of the module"):
        Signature(take, "take")


@pytest.mark.parametrize("annotation", ["datetime.Missing", "list[", "5 + 'a'"])
def test_an_annotation_that_cannot_be_read_is_refused(annotation: str) -> None:
    def take(value: Any) -> None: ...

    take.__annotations__["value"] = annotation

    with pytest.raises(InvalidInput, match="take: its annotations cannot be read"):
        Signature(take, "take")


def test_a_type_that_holds_itself_is_fine() -> None:
    def take(node: Node) -> int:
        return 1 if node.next is None else 2

    assert round_trip(take, Node(Node(None))) == 2


class Node(msgspec.Struct):
    next: Node | None


@given(
    args=st.lists(st.integers(-9, 9), min_size=2, max_size=5),
    named=st.dictionaries(st.sampled_from(["d", "e", "f"]), st.integers(-9, 9)),
)
def test_every_call_that_python_accepts_arrives_as_python_would_make_it(args: list[int], named: dict[str, int]) -> None:
    def take(a: int, b: int, c: int = 3, *rest: int, d: int = 4, **more: int) -> Any:
        return (a, b, c, rest, d, more)

    assert round_trip(take, *args, **named) == take(*args, **named)


def test_what_is_declared_of_an_argument_can_be_asked() -> None:
    def send(to: str, *extra: int, copies, anything: object = None, **rest: float) -> None: ...  # type: ignore[no-untyped-def]

    signature = Signature(send, "send")

    assert [signature.annotation(name) for name in ("to", "copies", "anything", "extra", "other")] == [
        str,
        Any,
        Any,
        float,
        float,
    ]
    assert Signature(lambda n: n, "f").annotation("other") is Any
