"""Which code made an output: part of its address."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from ..errors import InvalidInput

_DIGITS = 12


def code_of(function: Callable[..., Any], given: str | None, *, name: str) -> str:
    """The version given, or a digest of the function's own text, without comments, layout and docstring.

    What it calls is not looked at: whoever changes that says so with `version`.
    """
    if given is not None:
        if not isinstance(given, str) or not given or len(given) > 100:
            raise InvalidInput("version", f"{given!r} is not a version; give a text of 1 to 100 characters")
        return given
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        raise InvalidInput(
            "version", f'the text of {name} cannot be read here, so say which version it is: version="1"'
        ) from None
    made = tree.body[0]
    if isinstance(made, ast.FunctionDef | ast.AsyncFunctionDef):
        made.decorator_list = []
        if ast.get_docstring(made) is not None:
            made.body = made.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:_DIGITS]
