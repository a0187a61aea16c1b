"""Which classes a test has, and how another process finds them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mainstay.errors import InvalidInput
from mainstay.load.hooks import step
from mainstay.load.sources import LoadTest, Source, bundled_source, found_in, load_file, relocated
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


# on nodes --------------------------------------------------------------------------------------------


def test_a_file_travels_as_its_path_below_the_root_and_is_found_in_the_folder_of_the_node(tmp_path: Path) -> None:
    (tmp_path / "ours" / "load").mkdir(parents=True)
    test = written(tmp_path / "ours" / "load", GET)

    sent = bundled_source(test.source, tmp_path / "ours")
    assert sent == Source(file="load/shop.py")

    shutil.copytree(tmp_path / "ours", tmp_path / "node")
    found = relocated(sent, tmp_path / "node")
    assert (found.file, found.folder) == (str(tmp_path / "node/load/shop.py"), str(tmp_path / "node"))
    assert list(found_in(found, "shop").workflows) == ["Shop"]


def test_a_file_below_a_linked_root_is_below_it(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    test = written(tmp_path / "ours", GET)

    assert bundled_source(test.source, tmp_path / "link").file == "shop.py"


def test_a_file_that_the_bundle_cannot_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    test = written(tmp_path, GET)

    with pytest.raises(InvalidInput, match=r"shop.py is not below .*/ours, the root of the bundle"):
        bundled_source(test.source, tmp_path / "ours")


def test_modules_travel_without_the_folder_of_the_submitter() -> None:
    sent = bundled_source(LoadTest("mine", [InAModule]).source, "/anywhere")

    assert sent == Source(classes={"InAModule": "tests.load.test_sources:InAModule"})
    assert relocated(sent, "/cache/5e1f").folder == "/cache/5e1f"
    # installed on the node
    assert found_in(relocated(sent), "mine").workflows == {"InAModule": InAModule}


@pytest.mark.parametrize(
    ("file", "folder"), [("/home/ann/shop.py", "/cache"), ("../shop.py", "/cache"), ("shop.py", "")]
)
def test_a_file_that_is_not_in_the_bundle_is_refused(file: str, folder: str) -> None:
    with pytest.raises(InvalidInput, match="is not a file of a bundle; submit the test with a bundle that has it"):
        relocated(Source(file=file), folder)


def test_a_module_that_a_node_lacks_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("import json\nimport prices_that_are_missing\n")
    file = relocated(Source(file="shop.py"), tmp_path)
    module = relocated(Source(classes={"Shop": "a_missing_module:Shop"}), tmp_path)

    with pytest.raises(InvalidInput) as caught:
        found_in(file, "shop")
    assert (caught.value.field, caught.value.rule) == (
        "test",
        (
            "module 'prices_that_are_missing' (imported by shop.py, line 2) is neither in the bundle nor installed on "
            "this node; include it in the bundle, or install it on the nodes"
        ),
    )
    with pytest.raises(InvalidInput, match="module 'a_missing_module' is neither in the bundle nor installed on this"):
        found_in(module, "shop")
