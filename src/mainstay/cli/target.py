"""Which store a command works on, and which app it belongs to.

`--store` and `--app` are options of every command; MAINSTAY_STORE and MAINSTAY_APP stand in for them. What was typed
goes before the environment, and a store before an app: so one app can be pointed at another store.
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
from ..worker.app_import import find
from .options import Options, panel

_panel = panel("Store")


@runtime_checkable
class AppLike(Protocol):
    """What a command asks of an app."""

    @property
    def store_url(self) -> str: ...

    @property
    def settings(self) -> Settings: ...


class Where(Options, frozen=True, kw_only=True):
    """The options `--store` and `--app` of a command."""

    store: Annotated[str, _panel("--store", "-s", envvar="MAINSTAY_STORE", metavar="URL", help="URL of the store.")] = (
        ""
    )
    app: Annotated[
        str, _panel("--app", "-a", envvar="MAINSTAY_APP", metavar="MODULE:APP", help="App whose store to use.")
    ] = ""
    typed: frozenset[str] = frozenset()
    """which of them were given by hand, rather than by the environment"""

    @classmethod
    def from_values(cls, ctx: typer.Context, values: Mapping[str, Any]) -> Where:
        """Build it from the values on the command line."""
        return cls(**values, typed=frozenset(name for name in values if _is_typed(ctx, name)))

    def target(self) -> Target:
        """What they name. An app is imported only if its store is what is meant."""
        if self.app and "store" not in self.typed and ("app" in self.typed or not self.store):
            found = load(self.app)
            return Target(url=found.store_url, app=found)
        if not self.store:
            raise InvalidInput(
                "store", "which store? pass --store sqlite:///jobs.db or --app module:app, or set MAINSTAY_STORE"
            )
        return Target(url=self.store)

    def again(self, command: str) -> str:
        """A command to try next, on the same store: what was typed is said again.

        What comes from the environment is still there for the next command.
        """
        for name in ("store", "app"):
            if name in self.typed:
                return f"{command} --{name} {told_again(getattr(self, name))}"
        return command


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What a command works on."""

    url: str
    app: AppLike | None = None
    """None: only a store was named"""

    @property
    def settings(self) -> Settings | None:
        """Those of the app; None leaves it to the environment."""
        return None if self.app is None else self.app.settings


def told_again(typed: str) -> str:
    """What was typed, to be copied; but a password is not shown.

    >>> told_again("postgresql://ann:secret@db/jobs"), told_again("sqlite:///my jobs.db")
    ('URL', "'sqlite:///my jobs.db'")
    """
    hidden = ":***@" in shown_url(typed) or "password=" in typed
    return "URL" if hidden else shlex.quote(typed)


def load(target: str) -> AppLike:
    """The app that `module:app` names. Modules are found as `python -m` finds them: in this folder first.

    >>> load("shop/tasks.py:app")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: app: 'shop/tasks.py:app' is a file; write its module: shop.tasks:app
    """
    return cast("AppLike", find(target, lambda found: isinstance(found, AppLike)))


def _is_typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


__all__ = ["AppLike", "Target", "Where", "load", "told_again"]
