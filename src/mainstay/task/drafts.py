"""Hooks before submit: what is about to be submitted, and who may add to it."""

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
    """what it is called with; for looking at, not for changing"""
    options: dict[str, Any]
    """the task's options and those of this submit, as they were written; may be changed"""

    def add_metadata(self, **entries: str) -> None:
        """Add to the job's metadata: `draft.add_metadata(trace_id=...)`."""
        self.options["metadata"] = {**(self.options.get("metadata") or {}), **entries}

    def add_tags(self, *tags: str) -> None:
        self.options["tags"] = [*(self.options.get("tags") or ()), *tags]


#: looks at a draft, and changes it or answers with another one
BeforeSubmit = Callable[[Draft], Draft | None]


def check_hook(hook: BeforeSubmit) -> None:
    if not callable(hook) or inspect.iscoroutinefunction(hook):
        raise InvalidInput(
            "before_submit", f"{hook!r} is not a plain function; it runs in code with and without a loop, so no async"
        )


def drafted(hooks: list[BeforeSubmit], draft: Draft) -> Draft:
    """Ask each hook in turn."""
    for hook in hooks:
        answer: object = hook(draft)
        if answer is None:
            continue
        if not isinstance(answer, Draft):
            name = getattr(hook, "__qualname__", repr(hook))
            raise InvalidInput(
                "before_submit", f"{name} answered with a {type(answer).__name__}; return the Draft, or None"
            )
        draft = answer
    return draft
