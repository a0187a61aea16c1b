"""What people type for parameters, seeds and budgets, and which study they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from mainstay.batch.cli.inputs import budget_given, read_sets, seeds_given, sets_given, typed, values_of
from mainstay.batch.cli.target import study_target
from mainstay.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.2,0.3", [0.2, 0.3]),
        ("0.1:0.5:0.1", [0.1, 0.2, 0.3, 0.4, 0.5]),
        ("0:1:0.5", [0.0, 0.5, 1.0]),
        ("1:4", [1, 2, 3, 4]),
        ("10:1:-4", [10, 6, 2]),
        ("1,5:6,cold,true,null", [1, 5, 6, "cold", True, None]),
        ("a:b", ["a:b"]),
        ('["10:30", "x,y"]', ["10:30", "x,y"]),
        ("[]", []),
    ],
)
def test_values_are_lists_ranges_or_json(text: str, values: list[Any]) -> None:
    found = values_of(text)

    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["beta"], "not of the form name=values"),
        (["=3"], "not of the form name=values"),
        (["beta=1", "beta=2"], "is given twice"),
        (["beta=1,,2"], "contains an empty value"),
        (["beta=1:2:0"], "never gets from 1 to 2"),
        (["beta=2:1"], "never gets from 2 to 1"),
        (["beta=1:2:3:4"], "is not a range"),
        (["beta=0:1:0.0000001"], "the limit is 1,000,000"),
        (["beta=[1"], "is not a JSON list"),
        (["beta=[]"], "has no value"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(words: list[str], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        sets_given(words, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("False", False),
        ("TRUE", True),
        ("true", True),
        (".5", 0.5),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("+1", 1),
        ("+1e3", 1000.0),
        ("-3", -3),
        ('"False"', "False"),
        ('"a,b"', "a,b"),
        ('"10:30"', "10:30"),
        ("no", "no"),
        ("2024-10-01", "2024-10-01"),
        ("1.2.3", "1.2.3"),
        ("null", None),
    ],
)
def test_a_value_without_a_declared_type_is_read_by_one_rule(text: str, value: Any) -> None:
    (found,) = values_of(text)

    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("None", 'write null if there is no value, "None" for a text'),
        ("NaN", "null if there is no value"),
        ("NA", "null if there is no value"),
        ("Infinity", 'or "Infinity" for a text'),
        ("-inf", "could be a number or a text"),
        ("1e400", "too large for a float"),
        ("007", "could be a number or a text"),
        ("1_000", "could be a number or a text"),
        ("0x10", "could be a number or a text"),
        ("{a:1}", "is not valid JSON"),
        ("'x'", "in double quotes"),
    ],
)
def test_what_could_be_meant_in_two_ways_is_refused_with_how_to_write_it(text: str, advice: str) -> None:
    with pytest.raises(InvalidInput, match="param x: ") as refused:
        sets_given([f"x={text}"], None)

    assert advice in str(refused.value)
    assert "declare the type" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "declared", "value"),
    [
        ("007", str, "007"),
        ("12", str, "12"),
        ("NaN", str, "NaN"),
        ("10:30", str, "10:30"),
        ("True", str, "True"),
        ('"quoted"', str, "quoted"),
        ("None", float | None, None),
        ("False", bool, False),
        ("0", bool, 0),
        (".5", float, 0.5),
        ("hot", Literal["hot", "cold"], "hot"),
    ],
)
def test_a_value_with_a_declared_type_is_read_by_that(text: str, declared: Any, value: Any) -> None:
    (found,) = values_of(text, declared)

    assert (found, type(found)) == (value, type(value))


def test_booleans_of_a_data_frame_are_booleans_and_empty_cells_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "sets.csv"
    path.write_text("beta,vacc\n0.2,True\n0.3,False\n", encoding="utf-8")
    assert [one["vacc"] for one in read_sets(str(path))] == [True, False]

    path.write_text("beta,vacc\n0.2,\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="line 2, vacc: it is empty; write null"):
        read_sets(str(path))
    assert read_sets(str(path), {"vacc": str}) == [{"beta": 0.2, "vacc": ""}]


def test_files_hold_sets_in_three_forms(tmp_path: Path) -> None:
    wanted = [{"beta": 0.2, "mode": "cold"}, {"beta": 1, "mode": "hot"}]
    for name, text in {
        "sets.csv": "beta,mode\n0.2,cold\n\n1,hot\n",
        "sets.json": '[{"beta": 0.2, "mode": "cold"}, {"beta": 1, "mode": "hot"}]',
        "sets.jsonl": '{"beta": 0.2, "mode": "cold"}\n\n{"beta": 1, "mode": "hot"}\n',
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert read_sets(str(tmp_path / name)) == wanted


def test_each_set_of_a_file_is_combined_with_what_is_typed(tmp_path: Path) -> None:
    path = tmp_path / "sets.csv"
    path.write_text("beta\n1\n2\n", encoding="utf-8")

    assert sets_given(["n=7,8"], str(path)) == [
        {"beta": 1, "n": 7}, {"beta": 1, "n": 8}, {"beta": 2, "n": 7}, {"beta": 2, "n": 8},
    ]  # fmt: skip
    with pytest.raises(InvalidInput, match="is in set 1 of"):
        sets_given(["beta=3"], str(path))


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("sets.txt", "", "has another format than .csv, .json, .jsonl"),
        ("sets.csv", "", "contains no parameter set"),
        ("sets.csv", "a,a\n1,2\n", "without duplicates"),
        ("sets.csv", "a,b\n1\n", "line 2 has 1 values for 2 columns"),
        ("sets.json", "{}", "cannot be read"),
        ("sets.jsonl", '{"a": 1}\n[]\n', "line 2 is not a JSON object"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_its_line(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=complaint):
        read_sets(str(tmp_path / name))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        read_sets(str(tmp_path / "none.csv"))


def test_values_are_taken_as_the_study_declares_them() -> None:
    class Params(msgspec.Struct):
        beta: float
        gamma: float = 0.1

    found = typed([{"beta": 1}], lambda data: msgspec.convert(data, Params, strict=False))

    assert found == [{"beta": 1.0}]
    assert isinstance(found[0]["beta"], float)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [(None, None), ("3", [0, 1, 2]), ("0-2", [0, 1, 2]), ("1, 5,7", [1, 5, 7]), ("1,4-5", [1, 4, 5])],
)
def test_seeds_are_a_number_of_them_or_the_seeds_themselves(text: str | None, seeds: list[int] | None) -> None:
    assert seeds_given(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "1,", "5-3", "-1", "1.5"])
def test_other_seeds_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="seed"):
        seeds_given(text)


def test_a_budget_is_a_percentage_or_a_part() -> None:
    assert [budget_given(text) for text in (None, "10%", "12.5 %", "0.1", "0")] == [None, 0.1, 0.125, 0.1, 0.0]
    with pytest.raises(InvalidInput, match="write 10% or 0.1"):
        budget_given("ten")


def written(folder: Path, name: str, batches: str, more: str = "") -> str:
    text = f'from mainstay import App, Outputs\n\napp = App("sqlite:///jobs.db")\n{more}\n'
    for batch in batches.split():
        text += f'\n\n@app.batch(outputs=["a"])\ndef {batch}(params: dict, out: Outputs) -> None: ...\n'
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return str(folder / f"{name}.py")


def test_a_file_is_imported_from_its_folder_or_as_part_of_its_package(tmp_path: Path) -> None:
    plain = study_target(written(tmp_path, "study_plain", "simulate"), None)
    package = tmp_path / "study_package"
    package.mkdir()
    (package / "__init__.py").touch()
    inside = study_target(written(package, "inner", "simulate") + ":app", "simulate")

    assert (plain.target, plain.folder, plain.study.name) == (
        "study_plain:app", str(tmp_path), "study_plain.simulate",
    )  # fmt: skip
    assert (inside.target, inside.study.name) == ("study_package.inner:app", "study_package.inner.simulate")


def test_which_study_is_meant_has_to_be_clear(tmp_path: Path) -> None:
    two = written(tmp_path, "study_two", "one other")
    none = written(tmp_path, "study_none", "")
    apps = written(tmp_path, "study_apps", "one", more='second = App("sqlite:///other.db")')

    for target, study, complaint in (
        (two, None, "has several batches; name one: study_two.one, study_two.other"),
        (two, "study_two.ohter", "did you mean study_two.other?"),
        (none, None, "declares no batch"),
        (apps, None, "has several apps; name one: study_apps:app"),
        (str(tmp_path / "nowhere.py"), None, "is not a file"),
        (str(tmp_path / "nowhere"), None, "is not a file"),
    ):
        with pytest.raises(InvalidInput, match=complaint.replace("?", r"\?")):
            study_target(target, study)
    assert study_target(two, "other").study.name == "study_two.other"
    assert study_target(f"{apps}:app", "one").study.name == "study_apps.one"
