"""Which store a command works on, and which app it belongs to.

`--store` and `--app` are options of every command; MAINSTAY_STORE and MAINSTAY_APP stand in for them. What was typed
goes before the environment, and a store before an app: so one app can be pointed at another store.
"""

from __future__ import annotations

import difflib
import importlib
import os
import pkgutil
import shlex
import sys
import traceback
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

import msgspec
import typer

from ..errors import InvalidInput, MainstayError
from ..model import Settings

_PANEL = "Which store"
_FORM = "write it as module:app, like shop.tasks:app"


@runtime_checkable
class AppLike(Protocol):
    """What a command asks of an app."""

    @property
    def store_url(self) -> str: ...

    @property
    def settings(self) -> Settings: ...


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """The options `--store` and `--app` of a command."""

    store: str = ""
    app: str = ""
    typed: frozenset[str] = frozenset()
    """which of them were given by hand, rather than by the environment"""

    OPTIONS: ClassVar[Mapping[str, Any]] = {
        "store": Annotated[
            str,
            typer.Option(
                "--store",
                "-s",
                envvar="MAINSTAY_STORE",
                metavar="URL",
                help="Which store.",
                show_default=False,
                rich_help_panel=_PANEL,
            ),
        ],
        "app": Annotated[
            str,
            typer.Option(
                "--app",
                "-a",
                envvar="MAINSTAY_APP",
                metavar="MODULE:APP",
                help="Which app; its store is used.",
                show_default=False,
                rich_help_panel=_PANEL,
            ),
        ],
    }

    @classmethod
    def given(cls, ctx: typer.Context, values: Mapping[str, Any]) -> Where:
        """From what was given on the command line."""
        typed = frozenset(name for name in values if _is_typed(ctx, name))
        return cls(store=values["store"], app=values["app"], typed=typed)

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
                return f"{command} --{name} {shlex.quote(getattr(self, name))}"
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


def load(target: str) -> AppLike:
    """The app that `module:app` names. Modules are found as `python -m` finds them: in this folder first.

    >>> load("shop/tasks.py:app")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: app: 'shop/tasks.py:app' is a file; write its module: shop.tasks:app
    """
    name, _, path = target.strip().partition(":")
    if name.endswith(".py") or "/" in name:
        module = name.removesuffix(".py").strip("./").replace("/", ".")
        raise InvalidInput("app", f"{target!r} is a file; write its module: {module}:{path or 'app'}")
    if not name or not path:
        hint = f"did you mean {name}:app?" if name else _FORM
        raise InvalidInput("app", f"{target!r} does not say which object is the app; {hint}")
    module = _module(name)
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise InvalidInput("app", f"{_place(name, module)} has no {part!r}; {_other(name, found, part)}")
        found = getattr(found, part)
    if isinstance(found, type) or not isinstance(found, AppLike):
        what = f"the class {found.__name__}" if isinstance(found, type) else f"of type {type(found).__name__}"
        raise InvalidInput("app", f"{target} is {what}, not an app; make one: app = App('sqlite:///jobs.db')")
    return found


def _is_typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _module(name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if f"{name}.".startswith(f"{missing}."):
            raise InvalidInput("app", f"there is no module {missing!r}; {_other_module(missing, here)}") from None
        raise InvalidInput(
            "app", f"module {name} imports {missing!r}, which is not installed here{_where(error)}"
        ) from error
    except MainstayError as error:
        raise InvalidInput("app", f"importing {name} failed: {error}{_where(error)}") from error
    except (Exception, SystemExit) as error:
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise InvalidInput("app", f"importing {name} failed: {told}{_where(error)}") from error


def _where(error: BaseException) -> str:
    """The line of the user's own file that raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    own = [frame for frame in frames if frame.filename not in (__file__, importlib.__file__)]
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def _place(name: str, module: Any) -> str:
    file = getattr(module, "__file__", None)
    return f"module {name} ({file})" if file else f"module {name}"


def _other(name: str, found: Any, wanted: str) -> str:
    """What may have been meant: an app there is, or else a name that looks alike."""
    names = [key for key in dir(found) if not key.startswith("_")]
    apps = [key for key in names if isinstance(getattr(found, key, None), AppLike)]
    apps = [key for key in apps if not isinstance(getattr(found, key), type)]
    close = difflib.get_close_matches(wanted, apps or names, n=1) or apps[:1]
    return f"did you mean {name}:{close[0]}?" if close else "make one there: app = App('sqlite:///jobs.db')"


def _other_module(missing: str, here: str) -> str:
    parent, _, last = missing.rpartition(".")
    places = list(getattr(sys.modules.get(parent), "__path__", ())) if parent else [here]
    known = [found.name for found in pkgutil.iter_modules(places)]
    close = difflib.get_close_matches(last, known, n=1)
    if close:
        return f"did you mean {f'{parent}.' if parent else ''}{close[0]}?"
    return f"run this from the folder it is in (now: {here}), or install it"


__all__ = ["AppLike", "Target", "Where", "load"]
