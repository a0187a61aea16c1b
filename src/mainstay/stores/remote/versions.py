"""Which versions of Mainstay work together in one cluster, so that it can be upgraded program by program."""

from __future__ import annotations

import re
from importlib.metadata import version

from ...errors import VersionSkew

#: of this program
MAINSTAY_VERSION = version("mainstay")
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?![\d])")


def compatible(ours: str, theirs: str) -> bool:
    """Whether programs of two versions may work together: the same major version, and minor versions that differ by one
    at most. Before 1.0 the same rule holds. A version that cannot be read works with itself only.

    >>> compatible("1.4.0", "1.3.9"), compatible("1.4.0", "1.2.0"), compatible("2.0.0", "1.9.0")
    (True, False, False)
    >>> compatible("0.2.0", "0.3.0.dev4+g1a2b"), compatible("0.2.0", "unknown")
    (True, False)
    """
    if ours == theirs:
        return True
    left, right = _VERSION.match(ours), _VERSION.match(theirs)
    if left is None or right is None:
        return False
    return left[1] == right[1] and abs(int(left[2]) - int(right[2])) <= 1


def check_versions(ours: str, theirs: str) -> None:
    """Refuse a caller whose version does not work with ours.

    >>> check_versions("1.4.2", "1.6.0")
    Traceback (most recent call last):
    mainstay.errors.VersionSkew: version 1.6.0 cannot work with version 1.4.2: ...
    """
    if not compatible(ours, theirs):
        raise VersionSkew(ours, theirs[:40])


__all__ = ["MAINSTAY_VERSION", "check_versions", "compatible"]
