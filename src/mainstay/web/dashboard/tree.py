"""Payloads and results as a tree of limited size."""

from __future__ import annotations

from typing import Any

import msgspec

from ...words import counted

#: the most characters of a text, items of a list, and levels
_TEXT, _ITEMS, _DEPTH = 2000, 100, 12
#: the most nodes of a tree
_NODES = 2000


class TreeNode(msgspec.Struct, kw_only=True):
    """A value: a leaf with its text, or a branch."""

    key: str = ""
    kind: str
    """text, number, word (true, false, null), list, table, cut"""
    text: str = ""
    nodes: list[TreeNode] = []


def tree_of(value: Any) -> TreeNode:
    """The tree of plain data.

    >>> found = tree_of({"to": "ann", "n": [1, None]})
    >>> found.kind, [(node.key, node.kind, node.text) for node in found.nodes]
    ('table', [('to', 'text', 'ann'), ('n', 'list', '2 items')])
    """
    return _Grower().grow(value, "", 0)


class _Grower:
    def __init__(self) -> None:
        self._left = _NODES

    def grow(self, value: Any, key: str, depth: int) -> TreeNode:
        self._left -= 1
        if isinstance(value, dict):
            return self._branch(key, "table", [(_cut(str(name)), each) for name, each in value.items()], depth)
        if isinstance(value, list | tuple):
            return self._branch(key, "list", [(str(index), each) for index, each in enumerate(value)], depth)
        if value is None or isinstance(value, bool):
            return TreeNode(key=key, kind="word", text=msgspec.json.encode(value).decode())
        if isinstance(value, int | float):
            return TreeNode(key=key, kind="number", text=str(value))
        text = value if isinstance(value, str) else str(value)
        return TreeNode(key=key, kind="text", text=_cut(text))

    def _branch(self, key: str, kind: str, items: list[tuple[str, Any]], depth: int) -> TreeNode:
        count = counted(len(items), "item" if kind == "list" else "field")
        node = TreeNode(key=key, kind=kind, text=count, nodes=[])
        if depth >= _DEPTH:
            node.nodes.append(TreeNode(kind="cut", text="nested deeper than is shown"))
            return node
        for shown, (name, value) in enumerate(items):
            if shown >= _ITEMS or self._left <= 0:
                node.nodes.append(TreeNode(kind="cut", text=f"{len(items) - shown:,} more"))
                break
            node.nodes.append(self.grow(value, name, depth + 1))
        return node


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}… ({len(text):,} characters)"


__all__ = ["TreeNode", "tree_of"]
