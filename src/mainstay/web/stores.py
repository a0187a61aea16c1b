"""The stores of a server, by name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from ..control import Control, TaskDefaults
from ..errors import InvalidInput, StoreError
from ..stores import JobStore, open_store, shown_url
from .store_deadline import ANSWER_S, with_deadline


class Closable(Protocol):
    async def close(self) -> None: ...


T = TypeVar("T", bound=Closable)

#: how many controls of callers are kept
_KNOWN = 256


class ServedStore:
    """One store: its control, the objects that kinds of job keep for it, and its health."""

    def __init__(self, name: str, store: JobStore, *, answer_s: float = ANSWER_S) -> None:
        self.name = name
        self.url = shown_url(store.url)
        """without its secrets"""
        self.store = with_deadline(store, self, shown=self.url, answer_s=answer_s)
        self.control = Control(self.store)
        self.defaults = TaskDefaults(self.store)
        """the options of tasks, for jobs that are submitted by name"""
        self._kept: dict[Callable[[Control], Any], Any] = {}
        # making one takes longer than submitting a job with it
        self._controls: dict[str, Control] = {}
        self.answered_s = time.monotonic()
        """when it last answered"""
        self.error = ""
        """why the last call failed; empty: it did not"""

    def kept(self, make: Callable[[Control], T]) -> T:
        """An object that a kind of job keeps for this store. It is made on first use and closed with the store."""
        if make not in self._kept:
            self._kept[make] = make(self.control)
        kept: T = self._kept[make]
        return kept

    async def close(self) -> None:
        """Close the objects of the kinds, then the store."""
        for each in self._kept.values():
            await each.close()
        await self.store.close()

    def note_answer(self) -> None:
        """The store has answered; `/readyz` reports how long ago."""
        self.answered_s, self.error = time.monotonic(), ""

    def note_failure(self, error: StoreError) -> None:
        """A call failed."""
        self.error = str(error)

    def control_as(self, actor: str) -> Control:
        """The rules with this actor."""
        control = self._controls.get(actor)
        if control is None:
            if len(self._controls) >= _KNOWN:
                self._controls.clear()
            control = self._controls[actor] = Control(self.store, settings=self.control.settings, actor=actor)
        return control


class ServedStores:
    """All stores of a server. The first is the default."""

    def __init__(self, by_name: Mapping[str, ServedStore]) -> None:
        if not by_name:
            raise InvalidInput("store", "which store? pass --store sqlite:///jobs.db, or set MAINSTAY_STORE")
        self.by_name = dict(by_name)

    @classmethod
    async def open(cls, urls: Mapping[str, str]) -> Self:
        """Open stores by URL; all or none."""
        opened: dict[str, ServedStore] = {}
        try:
            for name, url in urls.items():
                opened[name] = ServedStore(name, await open_store(url))
        except BaseException:
            await asyncio.gather(*(served.store.close() for served in opened.values()), return_exceptions=True)
            raise
        return cls(opened)

    @property
    def urls(self) -> dict[str, str]:
        """URLs by name, without their secrets."""
        return {name: served.url for name, served in self.by_name.items()}

    @property
    def first(self) -> ServedStore:
        return next(iter(self.by_name.values()))

    def find(self, name: str | None) -> ServedStore:
        """The store of that name; raises `InvalidInput`."""
        if name is None:
            return self.first
        served = self.by_name.get(name)
        if served is None:
            raise InvalidInput("store", f"there is no store {name!r}; this server has {', '.join(self.by_name)}")
        return served

    async def close(self) -> None:
        for served in self.by_name.values():
            await served.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
