"""Subjects and patterns."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from mainstay.bus import QUEUE_LIMITS, MessageClass, check_pattern, check_subject, matches
from mainstay.errors import InvalidInput

# few tokens, so that patterns and subjects often match
TOKENS = st.sampled_from(["a", "b", "aa", "a-b", "$", "_"])
CLASSES = st.sampled_from(list(MessageClass))
SUBJECTS = st.builds(lambda first, rest: ".".join([first, *rest]), CLASSES, st.lists(TOKENS, min_size=1, max_size=4))
PATTERNS = st.builds(
    lambda first, middle, last: ".".join([first, *middle, last]),
    CLASSES,
    st.lists(TOKENS | st.just("*"), max_size=3),
    TOKENS | st.sampled_from(["*", ">"]),
)


def as_expression(pattern: str) -> str:
    """The pattern as a regular expression: another way to the same answer."""
    words = {"*": r"[^.]+", ">": r"[^.]+(\.[^.]+)*"}
    return r"\.".join(words.get(token, re.escape(token)) for token in pattern.split("."))


@given(PATTERNS, SUBJECTS)
def test_a_pattern_matches_what_its_expression_matches(pattern: str, subject: str) -> None:
    assert matches(pattern, subject) == bool(re.fullmatch(as_expression(pattern), subject))


@given(SUBJECTS)
def test_a_subject_is_a_pattern_that_matches_itself(subject: str) -> None:
    assert check_subject(subject) == check_pattern(subject) == subject
    assert matches(subject, subject)


@given(SUBJECTS, st.data())
def test_a_token_can_be_replaced_by_a_star_and_the_end_by_the_rest(subject: str, data: st.DataObject) -> None:
    tokens = subject.split(".")
    place = data.draw(st.integers(1, len(tokens) - 1))

    star = ".".join([*tokens[:place], "*", *tokens[place + 1 :]])
    rest = ".".join([*tokens[:place], ">"])

    assert matches(check_pattern(star), subject)
    assert matches(check_pattern(rest), subject)
    assert not matches(rest, ".".join(tokens[:place]))


@given(PATTERNS, SUBJECTS)
def test_a_pattern_matches_only_subjects_of_its_class(pattern: str, subject: str) -> None:
    if matches(check_pattern(pattern), subject):
        assert MessageClass.of(pattern) is MessageClass.of(subject)


@given(st.text(max_size=20))
def test_any_text_is_a_valid_subject_or_refused_by_field(text: str) -> None:
    subject = f"data.{text}"
    good = subject.isascii() and subject.isprintable() and not re.search("[ *>]", subject) and all(subject.split("."))

    if good:
        assert check_subject(subject) == subject
    else:
        with pytest.raises(InvalidInput) as caught:
            check_subject(subject)
        assert caught.value.field == "subject"


def test_the_longest_subject_has_255_characters() -> None:
    check_subject("data." + "x" * 250)

    with pytest.raises(InvalidInput, match="has 256 characters; at most 255 are accepted"):
        check_subject("data." + "x" * 251)


def test_every_class_has_a_queue_limit_and_control_has_the_largest() -> None:
    assert list(QUEUE_LIMITS) == list(MessageClass)
    assert max(QUEUE_LIMITS.values()) == QUEUE_LIMITS[MessageClass.CONTROL]
