"""Which classes a test has, and how another process finds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay.errors import InvalidInput
from mainstay.load.hooks import step
from mainstay.load.sources import LoadTest, Source, found_in, load_file
from mainstay.load.workflow import Workflow
from tests.load.trials import GET, written


class InAModule(Workflow):
    @step()
    async def act(self) -> None: ...


def test_only_classes_that_are_defined_in_the_file_are_collected(tmp_path: Path) -> None:
    (tmp_path / "imported_from_sources_test.py").write_text(
        "from mainstay.load import Workflow, step\n"
        "class Elsewhere(Workflow):\n    @step()\n    async def act(self): ...\n"
    )

    test = written(tmp_path, "from imported_from_sources_test import Elsewhere\n" + GET + "\nAgain = Shop\n")

    assert list(test.workflows) == ["Shop"]


def test_a_class_without_steps_is_there_to_be_derived_from(tmp_path: Path) -> None:
    text = "class Base(Workflow):\n    vus = 5\nclass Shop(Base):\n    @step()\n    async def act(self): ...\n"

    test = written(tmp_path, text)

    assert list(test.workflows) == ["Shop"]
    assert test.workflows["Shop"].vus == 5


def test_another_process_finds_the_classes_of_a_file(tmp_path: Path) -> None:
    test = written(tmp_path, GET)

    assert list(found_in(test.source, "again").workflows) == ["Shop"]


def test_another_process_finds_classes_by_their_module() -> None:
    test = LoadTest("mine", [InAModule])

    assert found_in(test.source, "mine").workflows == {"InAModule": InAModule}


def test_a_class_in_a_function_cannot_be_found_and_is_refused() -> None:
    class Here(Workflow):
        @step()
        async def act(self) -> None: ...

    with pytest.raises(InvalidInput, match="Here is defined in a function, and generator processes cannot find it"):
        LoadTest("mine", [Here])


def test_a_class_that_is_gone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Gone: generator processes do not find it at"):
        found_in(Source(classes={"Gone": "tests.load.test_sources:Gone"}), "mine")


@pytest.mark.parametrize("workflows", [[], [Workflow], [int], ["Shop"]])
def test_a_test_is_made_of_workflows(workflows: list[type]) -> None:
    with pytest.raises(InvalidInput):
        LoadTest("mine", workflows)


def test_two_workflows_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two of its workflows are called InAModule"):
        LoadTest("mine", [InAModule, type("InAModule", (InAModule,), {})], source=Source())


def test_a_file_that_is_loaded_twice_has_the_same_classes(tmp_path: Path) -> None:
    test = written(tmp_path, GET)

    assert load_file(tmp_path / "shop.py").workflows == test.workflows
