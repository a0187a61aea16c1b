"""Links between pages lead somewhere: to a file that is there, and to a heading of it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

#: every page a reader meets, wherever it stands
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part == "node_modules" for part in path.relative_to(ROOT).parts)
)
_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def links(text: str) -> list[str]:
    """What a page links to, save for other sites and what stands in its code."""
    return [found for found in _LINK.findall(_FENCED.sub("", text)) if not found.startswith(("http://", "https://"))]


def anchors(text: str) -> set[str]:
    """The headings of a page, as links name them; of equal ones the later have a number."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.+)$", _FENCED.sub("", text), flags=re.MULTILINE):
        slug = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken(source: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    wrong = []
    for target in links(source.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        found = source.parent / name if name else source
        if not found.exists() or (anchor and anchor not in anchors(found.read_text(encoding="utf-8"))):
            wrong.append(target)
    return wrong


def test_the_pages_are_found() -> None:
    names = {str(page.relative_to(ROOT)) for page in PAGES}

    assert {"README.md", "CHANGELOG.md", "docs/README.md", "docs/promises.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_every_file_that_the_architecture_page_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_0-9/]+(?:\.py|/[a-z_0-9]+))`", text))

    assert len(named) > 20
    assert [name for name in named if not ((ROOT / "src" / "mainstay" / name).exists() or (ROOT / name).exists())] == []


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {target.partition("#")[0] for target in links(index.read_text(encoding="utf-8"))}

    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= listed


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[a](other.md) [b](other.md#a-heading) [c](#here)\n# Here", []),
        ("[a](gone.md)", ["gone.md"]),
        ("[a](other.md#no-heading)", ["other.md#no-heading"]),
        ("[a](#there)\n# Here", ["#there"]),
        ("# Here\n# Here\n[a](#here-1) [b](#here-2)", ["#here-2"]),
        ("```text\n# no heading\n[a](gone.md)\n```\n[b](#no-heading)", ["#no-heading"]),
        ("[a](https://example.org/gone)", []),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, text: str, wrong: list[str]) -> None:
    (tmp_path / "other.md").write_text("# A `heading`!\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")

    assert broken(page) == wrong
