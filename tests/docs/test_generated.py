"""The generated parts of the pages are what the code says today."""

from __future__ import annotations

import pytest

from docs.generate import FOLDER, PARTS, part_names, rendered
from docs.vocabularies import VOCABULARIES, Vocabulary
from mainstay.lifecycle import JOB, UNIT

PAGES = {page.name: page.read_text(encoding="utf-8") for page in FOLDER.glob("*.md")}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_page_has_not_drifted_from_the_code(name: str) -> None:
    assert rendered(PAGES[name]) == PAGES[name], f"docs/{name} is out of date; run `make docs`"


def test_everything_that_can_be_generated_is_on_a_page_once() -> None:
    placed = [name for text in PAGES.values() for name in part_names(text)]

    assert sorted(placed) == sorted(PARTS)


def test_a_page_that_was_edited_by_hand_is_noticed() -> None:
    edited = PAGES["lifecycle.md"].replace("| `quarantined` |", "| `parked` |", 1)

    assert rendered(edited) == PAGES["lifecycle.md"] != edited


@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=lambda v: v.title)
def test_every_foreign_word_is_mapped_onto_states_we_have(vocabulary: Vocabulary) -> None:
    for word in vocabulary.words:
        assert word.job or word.unit, word.theirs
        assert not word.job or word.job in JOB.states, word
        assert not word.unit or word.unit in UNIT.states, word


def test_every_state_of_ours_has_an_ancestor_in_one_of_them() -> None:
    named = {word.job for vocabulary in VOCABULARIES for word in vocabulary.words}
    units = {word.unit for vocabulary in VOCABULARIES for word in vocabulary.words}

    assert set(JOB.states) - named == set()
    assert set(UNIT.states) - units == set()
