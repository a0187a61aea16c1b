from __future__ import annotations

import re
from pathlib import Path

from mainstay.lifecycle.invariants import INVARIANTS

PAGE = Path(__file__).parents[3] / "docs" / "check.md"


def test_the_page_lists_every_invariant_as_it_is_declared() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (.+?) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert listed == [(entry.code, entry.meaning) for entry in INVARIANTS]
