"""For commands that need more of an app than its store: its tasks, its schedules, its hooks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import msgspec

from ..control import Control
from ..errors import InvalidInput
from ..worker import AppBase
from .act import myself
from .common import opened
from .target import Where, load

T = TypeVar("T")


class Connected(msgspec.Struct, frozen=True):
    """An open store, and the app whose jobs are in it."""

    control: Control
    app: AppBase | None
    """None: only a store was named"""


def connecting(where: Where, work: Callable[[Connected], Awaitable[T]], *, creates: bool = False) -> T:
    """Open the store and work on it, through the app if one is named. The actor of what is submitted is this user.

    `creates`: an app's own store is created if it does not exist, as its program would do.
    """
    app, own_store = _named(where)

    async def run() -> T:
        opening = _own_store(app) if app is not None and own_store and creates else _other_store(where, app)
        async with opening as control:
            return await work(Connected(control, app))

    return asyncio.run(run())


def _named(where: Where) -> tuple[AppBase | None, bool]:
    """The app, and whether its own store is meant. An app is also used with another store: it knows the tasks."""
    target = where.target()
    own_store = target.app is not None
    app = target.app or (load(where.app) if where.app else None)
    if app is not None and not isinstance(app, AppBase):
        raise InvalidInput("app", f"{where.app} is of type {type(app).__name__}, not an App; it has no tasks")
    return app, own_store


@contextlib.asynccontextmanager
async def _own_store(app: AppBase) -> AsyncIterator[Control]:
    async with app:
        control = _mine(app.control, app)
        with app.client.connection.instead(control):
            yield control


@contextlib.asynccontextmanager
async def _other_store(where: Where, app: AppBase | None) -> AsyncIterator[Control]:
    async with opened(where.target().url) as store:
        if app is None:
            yield Control(store, actor=myself())
            return
        control = _mine(app.client.control_of(store), app)
        with app.client.connection.instead(control):
            yield control


def _mine(control: Control, app: AppBase) -> Control:
    return Control(control.store, settings=app.settings, rng=app.client.rng, actor=myself())
