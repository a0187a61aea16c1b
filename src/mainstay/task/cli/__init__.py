"""`mainstay submit`: submit tasks from the command line. Other kinds read their arguments with `TypedArguments`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .arguments import TypedArguments as TypedArguments

__getattr__, __dir__ = lazy_exports(__name__, {".arguments": "TypedArguments"})
