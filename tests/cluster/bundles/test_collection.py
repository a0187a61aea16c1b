"""A bundle has the program and what it imports from its project, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mainstay.cluster.bundles import Bundle, BundleLimits, collect_bundle, installed_digest
from mainstay.errors import InvalidInput, PayloadTooLarge
from tests.cluster.bundles.program import shop, write_program


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
    # a module that is given as data brings its imports
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
    ("target", "data", "message"),
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
def test_what_cannot_be_bundled_is_refused_by_name(tmp_path: Path, target: str, data, message: str) -> None:
    write_program(tmp_path, {"main.py": "", "broken.py": "def", "native.py": "import fast", "fast.abi3.so": b"\x7fELF"})

    with pytest.raises(InvalidInput, match=message):
        collect_bundle(target, tmp_path, data)


def test_too_much_code_is_refused_by_name(tmp_path: Path) -> None:
    write_program(tmp_path, {"main.py": "import big", "big.py": "#" * 2000, "big.csv": "1" * 5000})
    limits = BundleLimits(code_bytes=1000)

    with pytest.raises(PayloadTooLarge, match=r"big\.py with 2000 bytes"):
        collect_bundle("main:app", tmp_path, limits=limits)
    assert collect_bundle("main:app", tmp_path, ["big.csv"], limits=BundleLimits(code_bytes=3000)).manifest.data_bytes


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
