"""Which store a command works on, and which app it belongs to.

`--store` and `--app` are options of every command; MAINSTAY_STORE and MAINSTAY_APP are their defaults. An option takes
precedence over the environment, and a store over an app, so that an app can be used with another store.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Protocol, cast, runtime_checkable

import msgspec
import typer

from ..errors import InvalidInput
from ..model import Settings
from ..stores import shown_url
from ..worker import find_target
from .options import OptionGroup, panel

_panel = panel("Store")


@runtime_checkable
class AppLike(Protocol):
    """The part of an app that commands use."""

    @property
    def store_url(self) -> str: ...

    @property
    def settings(self) -> Settings: ...


class Where(OptionGroup, frozen=True, kw_only=True):
    """The options `--store` and `--app` of a command."""

    store: Annotated[str, _panel("--store", "-s", envvar="MAINSTAY_STORE", metavar="URL", help="URL of the store.")] = (
        ""
    )
    app: Annotated[
        str, _panel("--app", "-a", envvar="MAINSTAY_APP", metavar="MODULE:APP", help="App whose store to use.")
    ] = ""
    typed: frozenset[str] = frozenset()
    """the options that were typed, rather than taken from the environment"""

    @classmethod
    def from_values(cls, ctx: typer.Context, values: Mapping[str, Any]) -> Where:
        """Build it from the values on the command line."""
        return cls(**values, typed=frozenset(name for name in values if _is_typed(ctx, name)))

    def target(self) -> StoreTarget:
        """The store that the options name. The app is imported only if its store is the one."""
        if self.app and "store" not in self.typed and ("app" in self.typed or not self.store):
            found = load_app(self.app)
            return StoreTarget(url=found.store_url, app=found)
        if not self.store:
            raise InvalidInput(
                "store", "which store? pass --store sqlite:///jobs.db or --app module:app, or set MAINSTAY_STORE"
            )
        return StoreTarget(url=self.store)

    def again(self, command: str) -> str:
        """A command to try next, on the same store: with the option that was typed.

        The environment needs no option: the next command finds it as well.
        """
        for name in ("store", "app"):
            if name in self.typed:
                return f"{command} --{name} {shell_word(getattr(self, name))}"
        return command


class StoreTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The store that a command works on."""

    url: str
    app: AppLike | None = None
    """None: the store was given by its URL"""

    @property
    def settings(self) -> Settings | None:
        """The settings of the app; None: those of the environment."""
        return None if self.app is None else self.app.settings


def shell_word(typed: str) -> str:
    """Typed text as a word of a shell command, to be copied. A URL with a password is shown as URL.

    >>> shell_word("postgresql://ann:secret@db/jobs"), shell_word("sqlite:///my jobs.db")
    ('URL', "'sqlite:///my jobs.db'")
    """
    hidden = ":***@" in shown_url(typed) or "password=" in typed
    return "URL" if hidden else shlex.quote(typed)


def load_app(target: str) -> AppLike:
    """Import the app that `module:app` names, from the current folder first, as `python -m` does.

    >>> load_app("shop/tasks.py:app")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: app: 'shop/tasks.py:app' is a file; write its module: shop.tasks:app
    """
    return cast("AppLike", find_target(target, lambda found: isinstance(found, AppLike)))


def _is_typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
