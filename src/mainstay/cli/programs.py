"""Opening a store together with its app, for commands that need the tasks, schedules or hooks of the app."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import msgspec

from ..control import Control
from ..errors import InvalidInput
from ..stores import JobStore
from ..worker import AppBase
from .commands import OPENERS
from .common import opened
from .options import local_actor
from .target import Where, load_app


class Connected(msgspec.Struct, frozen=True):
    """An open store, and the app whose jobs it contains."""

    control: Control
    app: AppBase | None
    """None: only a store was given"""


def connected(where: Where, *, creates: bool = False) -> contextlib.AbstractAsyncContextManager[Connected]:
    """Open the store, through the app if one is given. The user of this terminal is the actor. The app is imported at
    once.

    `creates`: the store of the app is created if it does not exist, as a program of the app would.
    """
    target = where.target()
    # beside a store, the app is needed as well: it knows the tasks
    app = target.app or (load_app(where.app) if where.app else None)
    if app is not None and not isinstance(app, AppBase):
        raise InvalidInput("app", f"{where.app} is of type {type(app).__name__}, not an App; it has no tasks")
    if app is None:
        return _store_only(target.url)
    return _own_store(app) if target.app is not None and creates else _other_store(target.url, app)


OPENERS[Connected] = connected


@contextlib.asynccontextmanager
async def _store_only(url: str) -> AsyncIterator[Connected]:
    async with opened(url) as store:
        yield Connected(Control(store, actor=local_actor()), None)


@contextlib.asynccontextmanager
async def _own_store(app: AppBase) -> AsyncIterator[Connected]:
    async with app:
        with _local_control(app.control.store, app) as control:
            yield Connected(control, app)


@contextlib.asynccontextmanager
async def _other_store(url: str, app: AppBase) -> AsyncIterator[Connected]:
    async with opened(url) as store:
        with _local_control(store, app) as control:
            yield Connected(control, app)


@contextlib.contextmanager
def _local_control(store: JobStore, app: AppBase) -> Iterator[Control]:
    """Let the app work on the store, with the user of this terminal as the actor."""
    control = Control(store, settings=app.settings, rng=app.client.rng, actor=local_actor())
    with app.client.connection.instead(control):
        yield control
