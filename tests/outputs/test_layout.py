from __future__ import annotations

import pytest

from mainstay.errors import InvalidInput
from mainstay.outputs.layout import check_file, files_of, manifest_path


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".hidden", "_entry", "a b", "é", "x" * 101])
def test_names_that_some_storage_cannot_hold_or_that_are_ours_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="output: "):
        check_file(name)


@pytest.mark.parametrize(
    ("outputs", "complaint"),
    [
        ([], "there is none"),
        ("result", "is one text"),
        ({"a": "x.npy", "b": "X.npy"}, "two of them have the same file"),
        ({"a": "x/y"}, "has a folder in it"),
    ],
)
def test_declarations_that_cannot_be_kept_are_refused(outputs: object, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        files_of(outputs)  # type: ignore[arg-type]  # what a caller without types may give


def test_a_manifest_cannot_be_put_elsewhere() -> None:
    with pytest.raises(InvalidInput, match="job: "):
        manifest_path("../../etc")
