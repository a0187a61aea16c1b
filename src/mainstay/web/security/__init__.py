"""Who is let in: tokens, sign-in, limits, headers. Start at `guard`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .tokens import Token as Token, Tokens as Tokens

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".tokens": "Token Tokens",
    },
)
