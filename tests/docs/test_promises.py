"""Each promise is whole, and proven by tests that exist; no knob is left out."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

from mainstay.app import App
from mainstay.batch import BatchOptions
from mainstay.cli.options import ProcessOptions, declared
from mainstay.cli.worker import run_worker
from mainstay.cluster.liveness_settings import PREFIX, LivenessSettings, option_of
from mainstay.load.plan import LoadOptions
from mainstay.model import Settings
from mainstay.model.settings import describe, public_name
from mainstay.node.options import PolicyOptions
from mainstay.stores.postgres.connection.address import _OWN
from mainstay.stores.redis.address import _OPTIONS as _OF_REDIS, _TLS_OPTIONS
from mainstay.stores.sqlite import _OPTIONS
from mainstay.task.options import SubmitOptions, TaskOptions
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "promises.md"
TEXT = PAGE.read_text(encoding="utf-8")
COLUMNS = ["guarantee", "assuming", "weakened by", "proven by"]
KNOBS = ["knob", "default", "what it can cost"]
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+\.py)\)")
_NAMED = re.compile(r"`([^`]+)`")
#: what else a page of promises names as a knob
_BESIDES = {"memory:", "MAINSTAY_AUDIT_KEY", "codec", "fsync", "synchronous_commit", "appendfsync", "appendonly"}
#: how a server is reached, and by whom: not a matter of losing jobs
_CONNECTING = {"db", *_TLS_OPTIONS}


def tables(text: str, headings: list[str]) -> list[list[str]]:
    """The rows of all tables with these headings."""
    rows, within = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            within = False
        elif cells == headings:
            within = True
        elif within and set(cells) != {"---"}:
            rows.append(cells)
    return rows


@cache
def sentences_in(path: Path) -> set[str]:
    """The tests of a file, by their sentence."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {name.removeprefix("test_").replace("_", " ") for name in names if name.startswith("test_")}


PROMISES = tables(TEXT, COLUMNS)


def test_the_promises_are_found() -> None:
    assert len(PROMISES) > 30
    assert len({row[0] for row in PROMISES}) == len(PROMISES)


@pytest.mark.parametrize("row", PROMISES, ids=lambda row: row[0].split("**")[1])
def test_a_promise_says_what_it_assumes_what_weakens_it_and_what_proves_it(row: list[str]) -> None:
    assert len(row) == len(COLUMNS)
    assert all(row), f"an empty cell: {row}"
    assert _LINK.search(row[3]), "no test is named"


@pytest.mark.parametrize("row", PROMISES, ids=lambda row: row[0].split("**")[1])
def test_every_test_that_is_named_exists(row: list[str]) -> None:
    for sentence, target in _LINK.findall(row[3]):
        path = (PAGE.parent / target).resolve()
        assert path.exists(), target
        assert path.is_relative_to(ROOT / "tests"), target
        assert sentence in sentences_in(path), f"{target} has no test_{sentence.replace(' ', '_')}"


def test_what_is_linked_besides_tests_is_no_proof() -> None:
    for row in PROMISES:
        assert not re.sub(_LINK, "", row[3]).strip(" ,"), row[3]


def every_knob() -> set[str]:
    """All that can be set: settings, options of tasks, submits and schedules, of the URL, and of the worker."""
    settings = {public_name(field) for field in Settings.__struct_fields__}
    options = {*SubmitOptions.__annotations__, *TaskOptions.__annotations__}
    schedule = set(inspect.signature(App.schedule).parameters) - {"self", "when", "name"}
    worker = {*inspect.signature(run_worker).parameters, *declared(ProcessOptions)} - {"target", "process"}
    # one label for each option
    flags = {"--label" if name == "labels" else f"--{name.replace('_', '-')}" for name in worker}
    urls = {*_OPTIONS, *_OWN, *_OF_REDIS} - _CONNECTING
    batches = {*BatchOptions.__annotations__, *inspect.signature(App.submit_batch).parameters}
    batches -= {"self", "study", "options", "name", "params", "seeds", "outputs", "aggregate", "overall"}
    return settings | options | schedule | urls | flags | batches | {*PolicyOptions.__annotations__}


def test_every_knob_is_weighed() -> None:
    section = TEXT.partition("## Which knob loses my job?")[2]
    costly = {name for row in tables(section, KNOBS) for name in _NAMED.findall(row[0])}
    harmless = set(_NAMED.findall(section.partition("These weaken nothing:")[2]))

    assert costly & harmless == set()
    assert costly | harmless == every_knob() | _BESIDES


def test_what_weakens_a_promise_is_a_knob_that_there_is() -> None:
    more = {"chunk", "submit_many", "when", "failed", *LoadOptions.__struct_fields__}
    more |= {"--strict", "--tokens", "--mask", "--no-payloads", "--cores"}
    more |= {f"{PREFIX}{option_of(field).upper()}" for field in LivenessSettings.__struct_fields__}
    for row in PROMISES:
        assert set(_NAMED.findall(row[2])) <= every_knob() | _BESIDES | more, row[2]


def test_every_knob_has_its_cost_and_its_default() -> None:
    defaults = {name: default for name, _, default, _ in describe()}
    for knob, default, cost in tables(TEXT, KNOBS):
        assert knob
        assert cost, knob
        for name in _NAMED.findall(knob):
            # the URL has a `retries` of its own
            if "(in the URL)" not in knob:
                assert defaults.get(name, "") in default, f"{name}: {defaults[name]}"
