"""Task names: what is stored must be found again by a worker."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from mainstay import App
from mainstay.errors import InvalidInput


def at_the_top() -> None: ...


@pytest.fixture
def app() -> App:
    return App("memory:")


def test_a_task_is_called_by_its_module_and_function(app: App) -> None:
    assert app.task(at_the_top).name == f"{__name__}.at_the_top"


def test_a_name_given_is_taken(app: App) -> None:
    assert app.task(name="mail.send")(at_the_top).name == "mail.send"


def test_a_function_of_the_started_program_is_refused_with_advice(app: App) -> None:
    def send() -> None: ...

    send.__module__, send.__qualname__ = "__main__", "send"

    with pytest.raises(InvalidInput, match='move it to a module, or name it: @app.task\\(name="send"\\)'):
        app.task(send)
    assert app.task(name="send")(send).name == "send"


def test_a_function_made_inside_another_needs_a_name(app: App) -> None:
    def inner() -> None: ...

    with pytest.raises(InvalidInput, match="is defined inside a function"):
        app.task(inner)
    assert app.task(name="inner")(inner).name == "inner"


def test_a_lambda_needs_a_name(app: App) -> None:
    with pytest.raises(InvalidInput, match="a lambda has no name of its own"):
        app.task(lambda: 1)
    assert app.task(name="one")(lambda: 1)() == 1


def test_a_partial_needs_a_name(app: App) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(InvalidInput, match="has no name of its own"):
        app.task(functools.partial(add, 1))
    assert app.task(name="add1")(functools.partial(add, 1)).required == ("b",)


def test_two_tasks_of_one_name_are_refused_with_the_place_of_the_first(app: App) -> None:
    app.task(name="send")(at_the_top)

    with pytest.raises(InvalidInput, match=r"send: is the name of another task \(at .*test_task_name.py:\d+\)"):
        app.task(name="send")(lambda: 1)


def test_a_name_that_could_not_be_stored_is_refused(app: App) -> None:
    with pytest.raises(InvalidInput, match="letters, digits"):
        app.task(name="send mail")(at_the_top)


def test_what_yields_is_refused(app: App) -> None:
    def numbers() -> Any:
        yield 1

    async def later() -> Any:
        yield 1

    for function in (numbers, later):
        with pytest.raises(InvalidInput, match="it yields, but a task returns once"):
            app.task(name="numbers")(function)


def test_a_class_or_a_number_is_no_task(app: App) -> None:
    with pytest.raises(InvalidInput, match="it is a class"):
        app.task(App)
    with pytest.raises(InvalidInput):
        app.task(name="five")(5)  # type: ignore[call-overload]


class Mailer:
    def send(self, to: str) -> str:
        return to

    @staticmethod
    def check(to: str) -> str:
        return to


def test_a_method_is_refused_unless_it_has_its_object(app: App) -> None:
    for method in (Mailer.send, vars(Mailer)["check"]):
        with pytest.raises(InvalidInput, match="it is a method"):
            app.task(method)

    assert app.task(name="check")(Mailer.check).required == ("to",)
    assert app.task(name="send")(Mailer().send).required == ("to",)


def test_a_task_is_not_made_a_task_again(app: App) -> None:
    task = app.task(name="send")(at_the_top)

    with pytest.raises(InvalidInput, match="is a task already"):
        app.task(task)
