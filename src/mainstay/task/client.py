"""What all tasks of an app share: the store, the codec, the hooks before submit, and a loop for synchronous code."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..clock import Clock
from ..control import Control, JobFactory, OptionReader
from ..errors import MainstayError
from ..model import Settings
from ..stores import open_store
from .codec import Codec, Sealer
from .connection import StoreConnection
from .current_client import running
from .drafts import BeforeSubmit
from .portal import Portal

T = TypeVar("T")


class AppClient:
    """Submits the jobs of a program and reads them."""

    def __init__(
        self,
        url: str,
        settings: Settings,
        *,
        codec: Codec | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        audit_key: bytes | None = None,
    ) -> None:
        self.url = url
        self.clock = clock
        self.audit_key = audit_key
        self.settings = settings
        self.sealer = Sealer(codec)
        self.reader = OptionReader(settings)
        self.before_submit: list[BeforeSubmit] = []
        self.rng = rng
        self.warned_waits: set[str] = set()
        """the tasks that were warned about waiting for other jobs"""

        async def connect() -> Control:
            return self.control_of(await open_store(self.url, clock=clock, audit_key=audit_key))

        self.connection = StoreConnection(connect)
        self._portal = Portal()
        self._factory: JobFactory | None = None
        self._at_exit = False
        _clients.add(self)

    def use_store(self, url: str) -> None:
        """Use the store of another URL from now on."""
        if self.connection.control is not None:
            raise MainstayError("the store is open already; choose another one before it is opened")
        self.url = url

    def control_of(self, store: Any) -> Control:
        """The rules on a store, with these settings."""
        return Control(store, settings=self.settings, rng=self.rng)

    async def open(self) -> Control:
        return self.connection.control or await self.connection.open()

    @property
    def factory(self) -> JobFactory:
        """Makes the jobs that are stored in the user's transactions."""
        if self._factory is None:
            self._factory = JobFactory(self.settings, self.rng or random.Random(), "client")
        return self._factory

    def run(self, make: Callable[[], Coroutine[Any, Any, T]], *, what: str) -> T:
        """Run a coroutine for code without a loop."""
        if not self._at_exit:
            self._at_exit = True
            atexit.register(_close_at_exit, weakref.ref(self))
        return self._portal.run(make, what=what)

    async def release(self) -> None:
        """Close the store, unless it has other users. A job never closes the store of its worker."""
        if running() is not self:
            await self.connection.release()

    async def leave(self) -> None:
        """The same after `connection.enter`."""
        if running() is not self:
            await self.connection.leave()
        else:
            self.connection.let_go()

    def release_sync(self, *, what: str) -> None:
        """`release`; also ends the thread of the `_sync` methods, if the store was closed."""
        if self._portal.is_open or self.connection.control is not None:
            self._portal.run(self.release, what=what)
        if self.connection.control is None:
            self._portal.close()

    def close_sync(self, *, what: str) -> None:
        """Close the store and end that thread, also if they have users."""
        if self._portal.is_open or self.connection.control is not None:
            self._portal.run(self.connection.close, what=what)
        self._portal.close()

    def forget(self) -> None:
        """In a forked process: the open store is the parent's. The next use opens it again."""
        self.connection.forget()
        self._portal.forget()
        self._factory = None  # the parent has the same random state, and would make the same ids


_clients: weakref.WeakSet[AppClient] = weakref.WeakSet()


def _forget_all() -> None:
    for client in list(_clients):
        client.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _close_at_exit(reference: weakref.ref[AppClient]) -> None:
    client = reference()
    if client is not None:
        # the program ends; the next process that opens the store cleans up what cannot be closed now
        with contextlib.suppress(Exception):
            client.close_sync(what="close_sync")
