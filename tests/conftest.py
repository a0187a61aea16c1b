"""What all tests share: the same examples in every run, an environment without our variables, and the servers."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from servers import ServerMissing
from servers.nats import nats_program
from servers.shared import Host
from tests import places
from tests.collecting import Collecting
from tests.run_folder import in_memory

# The same inputs every time: a failure seen once is seen again. `HYPOTHESIS_PROFILE=explore` looks further.
# "too slow" is judged by the clock, and a busy machine must not fail a test
settings.register_profile(
    "steady", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "explore", max_examples=2_000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# a shell has what it runs in the background ignore Ctrl-C, and all that is started from there would ignore it as well
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("MAINSTAY_")]:
        monkeypatch.delenv(variable)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Commands that are run in this process set up its log, with the stream of their test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.hookimpl(tryfirst=True)  # before pytest looks where temporary files go
def pytest_configure(config: pytest.Config) -> None:
    """The process that drives the run holds the servers; the workers of xdist find them by the environment."""
    config.pluginmanager.register(Collecting())
    config.add_cleanup(places.close)
    if hasattr(config, "workerinput"):
        return
    if config.getoption("numprocesses", None) and (leave := in_memory()):
        config.add_cleanup(leave)
    config.add_cleanup(Host().close)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say which server of the bus the tests ran with."""
    with contextlib.suppress(ServerMissing):
        terminalreporter.write_line(f"bus and JetStream: {nats_program()}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    try:
        return (yield)
    except ServerMissing as error:
        places.without(error)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    try:
        return (yield)
    except ServerMissing as error:
        places.without(error)


@pytest.fixture(autouse=True)
def _nothing_is_left_on_the_servers() -> Iterator[None]:
    yield
    places.clear_given()


@pytest.fixture
def postgres_url(tmp_path: Path) -> str:
    """A store's URL on the run's PostgreSQL server, with a schema of the test's own."""
    return places.place("postgresql", tmp_path)


@pytest.fixture
def redis_url(tmp_path: Path) -> str:
    """A store's URL on the run's Redis server, with a prefix of the test's own."""
    return places.place("redis", tmp_path)
