"""Tags of steps, which select numbers of a run.

A step has its own tags and those of its workflow. They are known before the run, so nothing is recorded by tag: the
steps of a tag are added when its numbers are needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from .model import Header

Tags: TypeAlias = tuple[tuple[str, str], ...]
"""names and values, by name"""
Steps: TypeAlias = frozenset[tuple[str, str]]
"""workflow and step"""

#: a word that needs no quotes in a threshold
WORD = re.compile(r"[^\s{}:=,'\"<>!]+")


def tags_of(header: Header) -> dict[tuple[str, str], dict[str, str]]:
    """By workflow and step: its own tags, and those of its workflow that it does not override."""
    by_step = {}
    for workflow in header.workflows:
        for step in workflow.get("steps", ()):
            tags = {**(workflow.get("tags") or {}), **(step.get("tags") or {})}
            by_step[str(workflow["name"]), str(step["name"])] = {str(name): str(tags[name]) for name in tags}
    return by_step


def tagged(header: Header, wanted: Tags) -> Steps:
    """The steps with all of these tags."""
    return frozenset(step for step, tags in tags_of(header).items() if has(tags, wanted))


def groups_of(header: Header) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """By name and value of a tag: the steps that have it."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for step, tags in tags_of(header).items():
        for tag in tags.items():
            groups.setdefault(tag, []).append(step)
    return {tag: groups[tag] for tag in sorted(groups)}


def has(tags: Mapping[str, str], wanted: Tags) -> bool:
    """Whether some tags include all wanted ones."""
    return all(tags.get(name) == value for name, value in wanted)


def tags_text(tags: Iterable[tuple[str, str]]) -> str:
    """Tags as they are written in a threshold.

    >>> tags_text([("area", "checkout"), ("team", "north shop")])
    "{area:checkout, team:'north shop'}"
    """
    return "{" + ", ".join(f"{_word(name)}:{_word(value)}" for name, value in tags) + "}"


def _word(text: str) -> str:
    if WORD.fullmatch(text):
        return text
    return f"'{text}'" if "'" not in text else f'"{text}"'
