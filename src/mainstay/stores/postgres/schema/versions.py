"""Which schemas a program can use: the version of the tables, and the release of the functions.

Tables have a version, which each migration raises by one. Functions have a release number of their own, because a
release may change only them. They are upgraded with the tables, and never downgraded: of two programs on one database,
the newer one decides, and the older one continues if the newer one allows it.
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
RELEASE = 6
#: the oldest release whose programs can use these functions: raised when a function is removed, or changes its result
FITS = 1

#: the facts that describe a schema
FACTS = ("version", "functions", "functions_release", "functions_fits", "compatible_from")


class SchemaFacts(msgspec.Struct, frozen=True):
    """The facts that a schema stores about itself."""

    version: int = 0
    """0: it does not exist yet"""
    mark: str = ""
    """the digest of the text of its functions"""
    release: int = 0
    fits: int = 0
    compatible: int = 0
    """the oldest version of programs that can use its tables"""

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
        """Whether its functions are of a later release than this one. They are not replaced."""
        return self.mark != functions_mark() and (self.release > RELEASE or self.version > VERSION)

    @property
    def current(self) -> bool:
        """Whether nothing has to be migrated."""
        works = self.version == VERSION or (self.version > VERSION and self.compatible <= VERSION)
        return works and (self.mark == functions_mark() or self.is_newer)

    def refuse_newer(self, place: str, *, known: int = VERSION) -> None:
        """Raise `SchemaTooNew` unless this release can use it, after a migration if necessary."""
        refuse_newer(place, version=self.version, compatible=self.compatible, known=known)
        if self.is_newer and self.fits > RELEASE:
            raise SchemaTooNew(
                f"{place} has the functions of a newer Mainstay (release {self.release}, for programs from release "
                f"{self.fits} on; this one has {RELEASE}): upgrade Mainstay in this environment; nothing was changed"
            )

    def refuse_older(self, place: str, command: str) -> None:
        """Raise `SchemaTooOld` if it must be migrated first."""
        if self.version < VERSION:
            found = f"has version {self.version}" if self.version else "has no tables of Mainstay yet"
            raise SchemaTooOld(
                f"{place} {found}, this Mainstay needs version {VERSION}; nothing was changed. Run: {command}"
            )
        if not self.current:
            raise SchemaTooOld(
                f"{place} has the functions of another Mainstay (release {self.release}; this one has {RELEASE}); "
                f"nothing was changed. Run: {command}"
            )


@cache
def functions_mark() -> str:
    """The digest of the functions of this release."""
    return hashlib.sha256(functions().encode()).hexdigest()
