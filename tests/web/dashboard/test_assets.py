"""What pages are made of: small, whole, licensed, and kept by browsers."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

from mainstay.web.dashboard.assets import asset_url, assets
from tests.web.conftest import Server

STATIC = files("mainstay.web.dashboard") / "static"


def test_all_of_it_together_is_smaller_than_200_kb_compressed() -> None:
    distinct = {asset.mark: len(asset.packed) for asset in assets().values()}
    assert sum(distinct.values()) < 200_000


def test_vendored_files_are_those_that_the_list_names_each_with_its_licence() -> None:
    listed = re.findall(
        r"^\| \S+ \| [\d.]+ \| (\S+) \| \S+ \| ([0-9a-f]{64}) \|$",
        (STATIC / "vendor" / "README.md").read_text(),
        re.MULTILINE,
    )
    there = {name.removeprefix("vendor/") for name in assets() if name.startswith("vendor/")}
    assert {name for name, _ in listed} == there
    for name, digest in listed:
        file = STATIC / "vendor" / name
        assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
        assert (STATIC / "vendor" / name.split("/")[0] / "LICENSE").is_file()


def test_no_asset_of_ours_names_another_host() -> None:
    for name, asset in assets().items():
        if not name.startswith("vendor/"):
            found = re.findall(rb"https?://[^\s\"')]+", asset.body)
            assert [each for each in found if not each.startswith(b"http://www.w3.org/")] == [], name


async def test_a_file_is_kept_for_ever_under_the_name_that_changes_with_it(server: Server) -> None:
    kept = await server.client.get(asset_url("dashboard.js"))
    asked_again = await server.client.get("/static/dashboard.js")
    known = await server.client.get("/static/dashboard.js", headers={"If-None-Match": kept.headers["etag"]})
    assert (kept.status_code, "immutable" in kept.headers["cache-control"]) == (200, True)
    assert "immutable" not in asked_again.headers["cache-control"]
    assert (known.status_code, known.content) == (304, b"")


async def test_a_path_that_leads_elsewhere_finds_nothing(server: Server) -> None:
    for path in ("../assets.py", "%2e%2e/assets.py", "vendor/README.md", "nothing.css", "/etc/passwd"):
        assert (await server.client.get(f"/static/{path}")).status_code == 404, path
