"""Exceptions from the rules of the house, each with its reason. One that is no longer needed fails the test."""

from __future__ import annotations

#: class names that several modules define
SHARED_CLASS_NAMES: dict[str, str] = {}

#: modules whose name ends in "ing" and is a noun of the field all the same
GERUND_MODULES: dict[str, str] = {
    "mainstay.testing": "the field's name for the helpers that a library ships for the tests of its users",
}
