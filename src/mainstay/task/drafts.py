"""Hooks before submit, which can add to the options of a job."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..errors import InvalidInput


class Draft(msgspec.Struct, kw_only=True):
    """A job about to be submitted, as a `before_submit` hook sees it."""

    name: str
    """the task"""
    arguments: Mapping[str, Any]
    """the arguments of the call; read-only"""
    options: dict[str, Any]
    """the options of the task and of this submit, as the user wrote them; may be changed"""

    def add_metadata(self, **entries: str) -> None:
        """Add to the job's metadata: `draft.add_metadata(trace_id=...)`."""
        self.options["metadata"] = {**(self.options.get("metadata") or {}), **entries}

    def add_tags(self, *tags: str) -> None:
        self.options["tags"] = [*(self.options.get("tags") or ()), *tags]


#: changes a draft, or returns another one
BeforeSubmit = Callable[[Draft], Draft | None]


def check_hook(hook: BeforeSubmit) -> None:
    if not callable(hook) or inspect.iscoroutinefunction(hook):
        raise InvalidInput(
            "before_submit",
            f"{hook!r} is not a plain function; it cannot be async, because some submits have no loop",
        )


def drafted(hooks: list[BeforeSubmit], draft: Draft) -> Draft:
    """The draft after all hooks, in their order."""
    for hook in hooks:
        answer: object = hook(draft)
        if answer is None:
            continue
        if not isinstance(answer, Draft):
            name = getattr(hook, "__qualname__", repr(hook))
            raise InvalidInput("before_submit", f"{name} returned a {type(answer).__name__}; return the Draft, or None")
        draft = answer
    return draft
