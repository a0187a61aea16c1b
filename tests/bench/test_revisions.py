"""The comparison of two revisions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.revisions import Compared

ROOT = Path(__file__).parents[2]


def test_a_ratio_is_that_of_the_medians_and_marks_what_is_slower() -> None:
    compared = Compared("run", before=[100.0, 110.0, 90.0], after=[94.0, 120.0, 80.0])

    assert compared.ratio == 0.94
    assert compared.slower
    assert not Compared("run", before=[100.0], after=[95.0]).slower


@pytest.mark.slow
def test_the_same_revision_on_both_sides_is_measured_in_turns(tmp_path: Path) -> None:
    out = tmp_path / "compared.json"
    command = [sys.executable, "-m", "bench.revisions", "HEAD", "--rounds", "1", "--only", "web", "--json", str(out)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    # 1: slower, which one round on a busy machine may say of anything
    assert done.returncode in (0, 1), done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert {row["name"] for row in rows} == {"web, list", "web, submit"}
    assert all(len(row["before"]) == len(row["after"]) == 1 for row in rows)
