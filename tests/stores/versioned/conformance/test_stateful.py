"""Any sequence of calls answers as a dictionary with versions would."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from mainstay.stores.versioned import Versioned
from tests.stores.versioned.conformance.adapter import Adapter

KEYS = st.sampled_from(["a", "A", "a-b", "a/b", "a/b/c", "a/B", "a0", "b/" + "c" * 120, "b/" + "c" * 120 + "/d"])
VALUES = st.sampled_from([b"", b"x", b"y", b"\n\0"])


class Machine(RuleBasedStateMachine):
    adapter: Adapter

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory()
        self._store = self._run(self.adapter.open(Path(self._folder.name)))
        self._model: dict[str, Versioned] = {}
        self._given: set[str] = set()

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run(call)

    def _wrote(self, key: str, value: bytes, version: str | None) -> None:
        assert version is not None
        assert version not in self._given, "a version came back"
        self._given.add(version)
        self._model[key] = Versioned(value, version)

    @rule(key=KEYS, value=VALUES)
    def create(self, key: str, value: bytes) -> None:
        version = self._run(self._store.create_if_absent(key, value))
        if key in self._model:
            assert version is None
        else:
            self._wrote(key, value, version)

    @precondition(lambda self: self._model)
    @rule(data=st.data(), value=VALUES)
    def put(self, data: st.DataObject, value: bytes) -> None:
        key = data.draw(st.sampled_from(sorted(self._model)))
        self._wrote(key, value, self._run(self._store.put(key, value, self._model[key].version)))

    @precondition(lambda self: self._model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self._model)))
        assert self._run(self._store.delete(key, self._model.pop(key).version)) is True

    @precondition(lambda self: self._given)
    @rule(data=st.data(), key=KEYS, value=VALUES)
    def write_with_an_old_version(self, data: st.DataObject, key: str, value: bytes) -> None:
        current = {found.version for found in self._model.values()}
        if old := sorted(self._given - current):
            version = data.draw(st.sampled_from(old))
            assert self._run(self._store.put(key, value, version)) is None
            assert self._run(self._store.delete(key, version)) is False

    @rule(key=KEYS)
    def read(self, key: str) -> None:
        assert self._run(self._store.get(key)) == self._model.get(key)

    @rule(prefix=st.sampled_from(["", "a", "a/", "a/b", "b/cc"]), after=KEYS | st.just(""), limit=st.integers(1, 5))
    def list_some(self, prefix: str, after: str, limit: int) -> None:
        wanted = [key for key in sorted(self._model) if key > after and key.startswith(prefix)][:limit]
        assert self._run(self._store.list_keys(prefix, after=after, limit=limit)) == wanted

    def teardown(self) -> None:
        there = self._run(self._store.list_keys())
        self._run(self._store.close())
        self._loop.close()
        self._folder.cleanup()
        assert there == sorted(self._model)


def test_any_calls_answer_as_a_dictionary_would(adapter: Adapter) -> None:
    machine = type("Machine", (Machine,), {"adapter": adapter})

    run_state_machine_as_test(machine, settings=settings(max_examples=adapter.examples, stateful_step_count=20))
