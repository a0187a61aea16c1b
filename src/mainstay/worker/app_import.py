"""From `module:app` to the object it names, or to an error with a suggestion.

Workers, commands and tests all load their app here, and report the same errors.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import pkgutil
import sys
import traceback
import weakref
from collections.abc import Callable
from typing import Any

from ..errors import InvalidInput, MainstayError

#: whether an object is of the wanted kind
Fits = Callable[[object], bool]

#: loaded objects, with the target that named them
_targets: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()

_FORM = "write it as module:app, like shop.tasks:app"


def find_target(target: str, fits: Fits) -> Any:
    """The object that `module:app` names. Modules are found as `python -m` finds them: in this folder first.

    What an import raises is the cause of the `InvalidInput` raised here.

    >>> find_target("shop/tasks.py:app", callable)
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
    target_object: Any = module
    for part in path.split("."):
        if not hasattr(target_object, part):
            suggestion = _suggest_name(name, target_object, part, fits)
            raise InvalidInput("app", f"{_place(name, module)} has no {part!r}; {suggestion}")
        target_object = getattr(target_object, part)
    if not _is_app(target_object, fits):
        is_class = isinstance(target_object, type)
        what = f"the class {target_object.__name__}" if is_class else f"of type {type(target_object).__name__}"
        raise InvalidInput("app", f"{target} is {what}, not an app; make one: app = App('sqlite:///jobs.db')")
    with contextlib.suppress(TypeError):  # not every object can have a weak reference, for example a dictionary
        _targets[target_object] = target.strip()
    return target_object


def target_of(program: object) -> str:
    """The `module:app` that a program was loaded from: another process loads the same program by it. Empty if it was
    created in this process."""
    return _targets.get(program, "")


def _is_app(value: object, fits: Fits) -> bool:
    # a class has all the attributes that its objects have
    return not isinstance(value, type) and fits(value)


def find_modules_here() -> str:
    """Have modules found in the current folder first, as `python -m` does; the folder."""
    here = os.getcwd()
    # a node that runs a bundle forbids it: what is in this folder would replace modules of the bundle
    if not sys.flags.safe_path and here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    return here


def _module(name: str) -> Any:
    here = find_modules_here()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if f"{name}.".startswith(f"{missing}."):
            raise InvalidInput("app", f"there is no module {missing!r}; {_suggest_module(missing, here)}") from None
        raise InvalidInput(
            "app", f"module {name} imports {missing!r}, which is not installed here{_where(error)}"
        ) from error
    except MainstayError as error:
        raise InvalidInput("app", f"importing {name} failed: {error}{_where(error)}") from error
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise InvalidInput("app", f"importing {name} failed: {text}{_where(error)}") from error


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


def _suggest_name(name: str, parent: Any, wanted: str, fits: Fits) -> str:
    """An app of that module, or else a similar name."""
    names = [key for key in dir(parent) if not key.startswith("_")]
    apps = [key for key in names if _is_app(getattr(parent, key, None), fits)]
    close = difflib.get_close_matches(wanted, apps or names, n=1) or apps[:1]
    return f"did you mean {name}:{close[0]}?" if close else "make one there: app = App('sqlite:///jobs.db')"


def _suggest_module(missing: str, here: str) -> str:
    parent, _, last = missing.rpartition(".")
    places = list(getattr(sys.modules.get(parent), "__path__", ())) if parent else [here]
    known = [module.name for module in pkgutil.iter_modules(places)]
    close = difflib.get_close_matches(last, known, n=1)
    if close:
        return f"did you mean {f'{parent}.' if parent else ''}{close[0]}?"
    return f"run this from the folder it is in (now: {here}), or install it"
