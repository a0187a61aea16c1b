"""Which keys there are, and where a folder keeps them."""

from __future__ import annotations

import string

from hypothesis import given, strategies as st

from mainstay.storage.keys import check_key, check_prefix
from mainstay.stores.versioned.file_names import path_of

_CHARS = string.ascii_letters + string.digits + "_=-"
PARTS = st.builds(str.__add__, st.sampled_from(_CHARS), st.text(_CHARS + ".", max_size=130))
KEYS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)


@given(KEYS)
def test_every_beginning_of_a_key_is_a_prefix_unless_it_ends_before_a_part_that_is_none(key: str) -> None:
    assert check_key(key) == key
    for n in range(len(key) + 1):
        assert check_prefix(key[:n]) == key[:n]


@given(KEYS, KEYS)
def test_two_keys_have_two_places_also_where_case_does_not_count(one: str, other: str) -> None:
    same = "/".join(path_of(one)).lower() == "/".join(path_of(other)).lower()

    assert same == (one == other)


@given(KEYS)
def test_every_name_fits_a_file_system_and_no_file_is_a_folder_too(key: str) -> None:
    *folders, value = path_of(key)

    assert all(len(name) <= 255 for name in (*folders, value))
    assert value.endswith("@")
    assert not any(name.endswith("@") for name in folders)
