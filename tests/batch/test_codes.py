"""Which code made an output."""

from __future__ import annotations

import types

import pytest

from mainstay.batch.codes import code_of
from mainstay.errors import InvalidInput


def plain(params: dict) -> int:
    return params["a"] + 1


def same(params: dict) -> int:
    """The same, with words about it."""
    # and more words
    return params["a"] + 1


def other(params: dict) -> int:
    return params["a"] + 2


def test_words_and_layout_do_not_count_and_what_it_does_counts() -> None:
    same.__name__ = "plain"

    def code(function: object) -> str:
        return code_of(function, None, name="f").version  # type: ignore[arg-type]

    assert code(plain) == code(plain)
    assert len({code(plain), code(other)}) == 2


def test_a_docstring_does_not_count(tmp_path: object) -> None:
    source = "def f(a):\n    {}return a\n"
    codes = set()
    for words in ("", '"""Words."""\n    ', "# a remark\n    "):
        module = types.ModuleType("made")
        code = compile(source.format(words), f"<made {len(codes)} {words!r}>", "exec")
        exec(code, module.__dict__)
        import linecache

        linecache.cache[code.co_filename] = (1, None, source.format(words).splitlines(keepends=True), code.co_filename)
        codes.add(code_of(module.f, None, name="f").version)
    assert len(codes) == 1


def test_a_version_that_is_given_is_the_version() -> None:
    code = code_of(plain, "2024-10", name="f")
    assert code.version == "2024-10"
    assert code.source == code_of(plain, None, name="f").version, "the source is known all the same"
    with pytest.raises(InvalidInput, match="version"):
        code_of(plain, "", name="f")


def test_code_that_cannot_be_read_has_to_be_named() -> None:
    made: dict[str, object] = {}
    exec("def f(a): return a", made)
    with pytest.raises(InvalidInput, match='version="1"'):
        code_of(made["f"], None, name="f")  # type: ignore[arg-type]
    assert code_of(made["f"], "1", name="f") == ("1", "")  # type: ignore[arg-type]
