from __future__ import annotations

from hypothesis import given, strategies as st

from mainstay.web.dashboard.tree import TreeNode, tree_of

DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def size(node: TreeNode) -> int:
    return 1 + sum(size(each) for each in node.nodes)


@given(DATA)
def test_whatever_can_be_stored_has_a_tree(data: object) -> None:
    assert tree_of(data).kind in ("text", "number", "word", "list", "table")


def test_a_large_payload_stays_readable_and_says_what_is_left_out() -> None:
    found = tree_of({"rows": [{"n": [number] * 50} for number in range(1000)]})
    rows = found.nodes[0]
    assert size(found) < 3000
    assert rows.text == "1,000 items"
    assert rows.nodes[-1].kind == "cut"
    assert rows.nodes[-1].text.endswith("more")


def test_a_long_text_is_cut_and_its_length_told() -> None:
    assert tree_of("x" * 5000).text.endswith("… (5,000 characters)")
    assert tree_of({"k" * 5000: 1}).nodes[0].key.endswith("… (5,000 characters)")


def test_what_is_nested_without_end_is_shown_to_a_depth() -> None:
    data: list[object] = []
    for _ in range(200):
        data = [data]
    assert size(tree_of(data)) < 20
