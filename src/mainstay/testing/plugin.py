"""The pytest plugin: an app under test as a fixture. Loaded at every start of pytest, so it imports nothing of ours
before a test asks for it.

    def test_welcome(mainstay_harness):
        sign_up("bob@example.org")
        mainstay_harness.assert_submitted("mail.welcome", to="bob@example.org")

Which app it is says the option `mainstay_app = module:app` in the configuration of pytest, or a fixture of your own
with the name `mainstay_app`. It works alike in plain tests and in async ones, whatever runs those.
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
    "mainstay_harness does not know which app to test; put `mainstay_app = module:app` into the configuration of "
    "pytest, or write a fixture `mainstay_app` that returns it"
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
    """A harness around `mainstay_app`, with a store of its own for each test: nothing runs until the test says so."""
    from .harness import Harness  # noqa: PLC0415 - see above

    with Harness(mainstay_app) as harness:
        yield harness
