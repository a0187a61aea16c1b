"""The plans by which the server ran a store's statements, told by the server itself (`auto_explain`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest

from mainstay.stores.postgres.connection import pool
from mainstay.stores.postgres.connection.pool import Db

_EXPLAIN = (
    "LOAD 'auto_explain'; SET auto_explain.log_min_duration TO 0; SET auto_explain.log_level TO notice; "
    "SET auto_explain.log_format TO json; SET auto_explain.log_analyze TO on; SET auto_explain.log_timing TO off; "
    "SET auto_explain.log_nested_statements TO on"
)


class Ran(msgspec.Struct, frozen=True):
    """One statement as it was run."""

    sql: str
    nodes: tuple[dict[str, Any], ...]
    """all steps of its plan"""

    @property
    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in self.nodes if "Index Name" in node}

    @property
    def scanned(self) -> set[str]:
        """Tables of which every row was looked at."""
        return {node["Relation Name"] for node in self.nodes if node["Node Type"] == "Seq Scan"}

    @property
    def rows(self) -> Counter[str]:
        """How many rows of each table were looked at, wanted or not."""
        read: Counter[str] = Counter()
        for node in self.nodes:
            if "Scan" in node["Node Type"] and "Relation Name" in node:
                passed_over = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
                read[node["Relation Name"]] += (node["Actual Rows"] + passed_over) * node["Actual Loops"]
        return read


class Overheard:
    """Notes what the connections of this process run from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._heard: list[Ran] = []
        connect = pool.connect

        async def connect_and_listen(*args: Any, **options: Any) -> Db:
            db = await connect(*args, **options)
            await db.raw.execute(_EXPLAIN)
            db.raw.add_log_listener(self._note)
            return db

        monkeypatch.setattr(pool, "connect", connect_and_listen)

    async def during(self, call: Callable[[], Awaitable[Any]]) -> list[Ran]:
        """What a call runs on stored tables."""
        self._heard.clear()
        await call()
        ran = [each for each in self._heard if any("Relation Name" in node for node in each.nodes)]
        assert ran, "nothing was overheard"
        return ran

    def _note(self, _connection: object, message: Any) -> None:
        _, _, plan = message.message.partition("plan:\n")
        if plan:
            told = msgspec.json.decode(plan)
            self._heard.append(Ran(told["Query Text"], tuple(_nodes(told["Plan"]))))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)
