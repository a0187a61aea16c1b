"""Which schema a program can work with: the version of its tables, and the release of its functions.

Tables have a version, and each migration raises it by one. Functions have a number of their own, because a release may
change nothing but them. They are brought up with the tables, and never back: of two programs of different releases on
one database the newer one decides, and the older one goes on if the newer one says that it may.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache

import msgspec

from ....errors import SchemaTooNew, SchemaTooOld
from ...compatibility import refuse_newer
from .definition import VERSION, functions

#: raised with every release that changes a function
RELEASE = 5
#: the oldest release whose programs can go on with these functions: raised when one is gone, or answers otherwise
FITS = 1

#: the facts that tell
FACTS = ("version", "functions", "functions_release", "functions_fits", "compatible_from")


class SchemaFacts(msgspec.Struct, frozen=True):
    """What a schema says of itself."""

    version: int = 0
    """0: nothing of ours is there yet"""
    mark: str = ""
    """of the text of its functions"""
    release: int = 0
    fits: int = 0
    compatible: int = 0
    """the oldest version of programs that can work with its tables"""

    @classmethod
    def of(cls, facts: Mapping[str, str | None]) -> SchemaFacts:
        return cls(
            int(facts.get("version") or 0),
            facts.get("functions") or "",
            int(facts.get("functions_release") or 0),
            int(facts.get("functions_fits") or 0),
            int(facts.get("compatible_from") or facts.get("version") or 0),
        )

    @property
    def is_newer(self) -> bool:
        """Whether its functions are of a later release than this one: they stay as they are."""
        return self.mark != functions_mark() and (self.release > RELEASE or self.version > VERSION)

    @property
    def current(self) -> bool:
        """Whether there is nothing to bring up."""
        works = self.version == VERSION or (self.version > VERSION and self.compatible <= VERSION)
        return works and (self.mark == functions_mark() or self.is_newer)

    def refuse_newer(self, place: str, *, known: int = VERSION) -> None:
        """Raise `SchemaTooNew` unless this release can work with it, once it is brought up."""
        refuse_newer(place, version=self.version, compatible=self.compatible, known=known)
        if self.is_newer and self.fits > RELEASE:
            raise SchemaTooNew(
                f"{place} has the functions of a newer Mainstay (release {self.release} of them, for programs from "
                f"{self.fits} on; this one is of {RELEASE}): upgrade Mainstay in this environment; nothing was changed"
            )

    def refuse_older(self, place: str, command: str) -> None:
        """Raise `SchemaTooOld` if it must be brought up first."""
        if self.version < VERSION:
            there = f"has version {self.version} in it" if self.version else "has nothing of Mainstay's in it yet"
            raise SchemaTooOld(
                f"{place} {there}, this Mainstay needs version {VERSION}; nothing was changed. Run: {command}"
            )
        if not self.current:
            raise SchemaTooOld(
                f"{place} has the functions of another Mainstay (release {self.release} of them; this one is of "
                f"{RELEASE}); nothing was changed. Run: {command}"
            )


@cache
def functions_mark() -> str:
    """Tells whether a database has the functions of this release."""
    return hashlib.sha256(functions().encode()).hexdigest()
