"""The pytest plugin: an app under test as a fixture. It is loaded at every start of pytest, so it imports nothing of
Mainstay before a test needs it.

    def test_welcome(mainstay_harness):
        sign_up("bob@example.org")
        mainstay_harness.assert_submitted("mail.welcome", to="bob@example.org")

The option `mainstay_app = module:app` in the configuration of pytest names the app, or your own fixture `mainstay_app`
returns it. The fixture works in plain and in async tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..app import App
    from .harness import Harness

_OPTION = "mainstay_app"
_ADVICE = (
    "mainstay_harness has no app to test; put `mainstay_app = module:app` into the configuration of pytest, or write a "
    "fixture `mainstay_app` that returns it"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addini(_OPTION, "the app that the fixture mainstay_harness tests, as module:app", default="")


@pytest.fixture(scope="session")
def mainstay_app(pytestconfig: pytest.Config) -> App:
    """The app under test: the one that the option `mainstay_app` names. Override it to test another."""
    target = str(pytestconfig.getini(_OPTION)).strip()
    if not target:
        pytest.fail(_ADVICE, pytrace=False)
    from ..app import App  # noqa: PLC0415 - see above
    from ..errors import InvalidInput  # noqa: PLC0415
    from ..worker import load  # noqa: PLC0415

    try:
        found = load(target)
    except InvalidInput as error:
        pytest.fail(f"the option {_OPTION}: {error.rule}", pytrace=False)
    if not isinstance(found, App):
        pytest.fail(f"the option {_OPTION}: {target} is a {type(found).__name__}, not an App", pytrace=False)
    return found


@pytest.fixture
def mainstay_harness(mainstay_app: App) -> Iterator[Harness]:
    """A harness around `mainstay_app`, with its own store for each test: no job runs until the test says so."""
    from .harness import Harness  # noqa: PLC0415 - see above

    with Harness(mainstay_app) as harness:
        yield harness
