"""A bundle has the program and what it imports from its project, and nothing else."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from mainstay.bundles import PART_BYTES, Bundle, BundleLimits, collect_bundle, collect_code, installed_digest
from mainstay.errors import InvalidInput, PayloadTooLarge
from tests.bundles.program import shop, write_program


def paths(bundle: Bundle) -> list[str]:
    return [file.path for file in bundle.manifest.files]


def test_every_form_of_import_below_the_root_is_followed(tmp_path: Path) -> None:
    write_program(
        tmp_path,
        {
            "main.py": "import pkg.sub.deep\ndef f():\n    from late import x\n"
            "import json, mainstay\nfrom importlib import import_module\nimport_module('literal')\nimport_module(n)",
            "pkg/__init__.py": "__all__ = ['starred']",
            "pkg/starred.py": "",
            "pkg/sub/__init__.py": "",
            "pkg/sub/deep.py": "from . import sibling\nfrom ..up import thing\nfrom space import inner",
            "pkg/sub/sibling.py": "",
            "pkg/up.py": "thing = 1",
            "space/inner.py": "",
            "late.py": "x = 1",
            "literal.py": "",
            "computed.py": "import helper",
            "helper.py": "",
            "other.py": "",
            "mainstay/__init__.py": "",
        },
    )
    expected = [
        "late.py", "literal.py", "main.py", "pkg/__init__.py", "pkg/starred.py", "pkg/sub/__init__.py",
        "pkg/sub/deep.py", "pkg/sub/sibling.py", "pkg/up.py", "space/inner.py",
    ]  # fmt: skip

    assert paths(collect_bundle("main:app", tmp_path)) == expected
    # a module that a pattern gives brings its imports
    more = collect_bundle("main.py", tmp_path, ["computed.py"])
    assert paths(more) == sorted([*expected, "computed.py", "helper.py"])
    assert more.manifest.target == "main:app"


def test_collecting_runs_nothing_and_is_the_same_on_every_machine(tmp_path: Path) -> None:
    one, two = shop(tmp_path / "one"), shop(tmp_path / "two")
    for root in (one, two):
        (root / "shop/prices.py").write_text("raise SystemExit\nRATE = 1")

    bundle = collect_bundle("shop/tasks.py:app", one, ["data/*.csv"])

    assert bundle.digest == collect_bundle("shop.tasks:app", two, ["data/*.csv"]).digest
    assert [(file.path, file.data) for file in bundle.manifest.files] == [
        ("data/rates.csv", True),
        ("shop/__init__.py", False),
        ("shop/prices.py", False),
        ("shop/tasks.py", False),
    ]
    (two / "data/rates.csv").write_text("changed")
    assert bundle.digest != collect_bundle("shop.tasks:app", two, ["data/*.csv"]).digest


def test_data_files_and_folders_come_as_they_are_whatever_is_in_them(tmp_path: Path) -> None:
    write_program(
        tmp_path,
        {"main.py": "", "data/b.py": "def", "data/sub/c.csv": "1", "data/.git/x": "", "a.csv": "1", "a[1].csv": "2"},
    )

    bundle = collect_bundle("main:app", tmp_path, data=["data", "a[1].csv", str(tmp_path / "a.csv")])

    assert [(file.path, file.data) for file in bundle.manifest.files] == [
        ("a.csv", True), ("a[1].csv", True), ("data/b.py", True), ("data/sub/c.csv", True), ("main.py", False),
    ]  # fmt: skip
    for place, message in (("../x", "not below the root"), ("/etc", "not below the root"), ("no.csv", "no file no")):
        with pytest.raises(InvalidInput, match=message):
            collect_bundle("main:app", tmp_path, data=[place])


def test_a_large_file_is_listed_with_the_digests_of_its_parts(tmp_path: Path) -> None:
    content = bytes(PART_BYTES) + b"x" * PART_BYTES + b"end"
    write_program(tmp_path, {"main.py": "", "big.bin": content, "one.bin": content[:PART_BYTES]})

    big, _, one = collect_bundle("main:app", tmp_path, ["*.bin"]).manifest.files

    assert [(part.offset, part.size) for part in big.parts] == [
        (0, PART_BYTES), (PART_BYTES, PART_BYTES), (2 * PART_BYTES, 3),
    ]  # fmt: skip
    assert [part.sha256 for part in big.parts] == [
        hashlib.sha256(content[begin : begin + PART_BYTES]).hexdigest() for begin in range(0, len(content), PART_BYTES)
    ]
    assert (one.split, [part.sha256 for part in one.parts]) == ((), [one.sha256])


def test_an_import_by_a_literal_path_is_not_a_module(tmp_path: Path) -> None:
    write_program(tmp_path / "p", {"main.py": f"__import__('{tmp_path}/secret')\n__import__('..secret')"})
    write_program(tmp_path, {"secret.py": ""})

    assert paths(collect_bundle("main:app", tmp_path / "p")) == ["main.py"]


def test_installed_packages_are_not_bundled(tmp_path: Path) -> None:
    root = write_program(tmp_path / "lib/site-packages", {"main.py": ""})

    with pytest.raises(InvalidInput, match="is in site-packages: install packages on the nodes"):
        collect_bundle("main:app", root)


def test_history_caches_and_environments_are_left_out(tmp_path: Path) -> None:
    write_program(
        tmp_path,
        {
            "main.py": "", "a/x.txt": "", ".git/x.txt": "", "a/__pycache__/x.txt": "", "env/pyvenv.cfg": "",
            "env/x.txt": "", "lib/site-packages/x.txt": "", "x.txt": "",
        },
    )  # fmt: skip

    assert paths(collect_bundle("main:app", tmp_path, ["**/*.txt"])) == ["a/x.txt", "main.py", "x.txt"]
    assert paths(collect_bundle("main:app", tmp_path, ["a/**"])) == ["a/x.txt", "main.py"]


def test_a_link_out_of_the_root_is_refused_and_one_within_is_a_file(tmp_path: Path) -> None:
    root = write_program(tmp_path / "root", {"main.py": "import helper", "real.py": "x = 1"})
    secret = write_program(tmp_path, {"secret.txt": "s", "helper.py": ""})
    (root / "helper.py").symlink_to(root / "real.py")
    (root / "here.txt").symlink_to(secret / "secret.txt")

    assert paths(collect_bundle("main:app", root)) == ["helper.py", "main.py"]
    with pytest.raises(InvalidInput, match=r"here\.txt is a link to"):
        collect_bundle("main:app", root, ["*.txt"])
    (root / "helper.py").unlink()
    (root / "helper.py").symlink_to(secret / "helper.py")
    with pytest.raises(InvalidInput, match=r"helper\.py is a link to"):
        collect_bundle("main:app", root)


@pytest.mark.parametrize(
    ("target", "include", "message"),
    [
        ("absent:app", (), "there is no module 'absent'"),
        ("../main.py", (), "not below the root"),
        ("/etc/main.py", (), "not below the root"),
        ("main:a b", (), "does not name an app"),
        ("main:app", ["/etc/*"], "leaves the root"),
        ("main:app", ["../*"], "leaves the root"),
        ("main:app", ["*.nothing"], "no file below"),
        ("broken:app", (), r"broken\.py cannot be read as Python"),
        ("native:app", (), "module fast is compiled"),
    ],
)
def test_what_cannot_be_bundled_is_refused_by_name(tmp_path: Path, target: str, include, message: str) -> None:
    write_program(tmp_path, {"main.py": "", "broken.py": "def", "native.py": "import fast", "fast.abi3.so": b"\x7fELF"})

    with pytest.raises(InvalidInput, match=message):
        collect_bundle(target, tmp_path, include)


def test_too_much_code_is_refused_by_name(tmp_path: Path) -> None:
    write_program(tmp_path, {"main.py": "import big", "big.py": "#" * 2000, "big.csv": "1" * 5000})
    limits = BundleLimits(code_bytes=1000)

    with pytest.raises(PayloadTooLarge, match=r"big\.py with 2000 bytes"):
        collect_bundle("main:app", tmp_path, limits=limits)
    with pytest.raises(PayloadTooLarge, match="main has 3 files; at most 2"):
        collect_bundle("main:app", tmp_path, ["big.csv"], limits=BundleLimits(files=2))
    with pytest.raises(PayloadTooLarge, match=r"at most 4000 .* big\.csv with 5000 bytes"):
        collect_bundle("main:app", tmp_path, ["big.csv"], limits=BundleLimits(data_bytes=4000))
    assert collect_bundle("main:app", tmp_path, ["big.csv"], limits=BundleLimits(code_bytes=3000)).manifest.data_bytes


def test_too_much_data_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(tmp_path, {"main.py": ""})
    with (tmp_path / "big.bin").open("wb") as big:
        big.truncate(5 * 2**30)
    monkeypatch.setattr("mainstay.bundles.collection._digests", lambda file: pytest.fail(f"{file} was read"))

    with pytest.raises(PayloadTooLarge, match=r"big\.bin with 5368709120 bytes"):
        collect_bundle("main:app", tmp_path, data=["big.bin"])


def test_the_digest_of_an_installed_program_changes_with_its_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = installed_digest("shop.tasks:app")
    write_program(tmp_path, {"shop/__pycache__/tasks.pyc": "x"})

    assert installed_digest("shop") == before
    assert "shop" not in sys.modules
    (tmp_path / "shop/prices.py").write_text("RATE = 2")
    assert installed_digest("shop.tasks:app") != before
    for target in ("nowhere_at_all:app", "sys:app", ""):
        with pytest.raises(InvalidInput):
            installed_digest(target)


def test_the_digest_of_an_app_in_the_current_folder_is_that_of_what_an_engine_would_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = shop(tmp_path / "here"), shop(tmp_path / "there", rate="2")
    (here / "json").mkdir()
    monkeypatch.syspath_prepend(there)
    before, plain = installed_digest("shop.tasks:app"), installed_digest("json")

    monkeypatch.chdir(here)

    assert installed_digest("shop.tasks:app") != before
    assert installed_digest("json") == plain  # a folder without `__init__.py` comes after a package
    with pytest.raises(InvalidInput, match="run this from its folder"):
        installed_digest("nowhere_at_all:app")


def test_code_without_an_app_is_files_of_any_name_and_modules_with_what_they_import(tmp_path: Path) -> None:
    write_program(
        tmp_path,
        {
            "load test.py": "from prices import RATE\nimport json",
            "prices.py": "import pkg.deep\nRATE = 1",
            "pkg/__init__.py": "",
            "pkg/deep.py": "",
            "extra/more.py": "",
            "extra/users.csv": "ann",
            "other.py": "",
        },
    )

    bundle = collect_code(["load test.py"], tmp_path)

    assert paths(bundle) == ["load test.py", "pkg/__init__.py", "pkg/deep.py", "prices.py"]
    assert (bundle.manifest.name, bundle.manifest.target) == ("load_test", "")
    more = collect_code(["pkg.deep", "prices"], tmp_path, ["extra/*.py"], data=["extra/users.csv"])
    assert paths(more) == ["extra/more.py", "extra/users.csv", "pkg/__init__.py", "pkg/deep.py", "prices.py"]
    assert [file.path for file in more.manifest.files if file.data] == ["extra/users.csv"]


def test_a_file_in_a_folder_below_the_root_imports_from_both(tmp_path: Path) -> None:
    write_program(
        tmp_path,
        {"tests/shop.py": "import near, far", "tests/near.py": "", "far.py": "", "near.py": "", "tests/far/x.txt": ""},
    )

    assert paths(collect_code(["tests/shop.py"], tmp_path)) == ["far.py", "near.py", "tests/near.py", "tests/shop.py"]


def test_code_that_is_not_below_the_root_is_refused_by_name(tmp_path: Path) -> None:
    write_program(tmp_path, {"inside/a.py": "", "outside.py": ""})

    with pytest.raises(InvalidInput, match=r"there is no file \.\./outside\.py below"):
        collect_code(["../outside.py"], tmp_path / "inside")
    with pytest.raises(InvalidInput, match="there is no module 'outside' below"):
        collect_code(["outside"], tmp_path / "inside")
