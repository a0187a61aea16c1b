"""What programs import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mainstay


@pytest.mark.parametrize("name", mainstay.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(mainstay, name).__name__ == name
    assert name in dir(mainstay)


def test_what_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'mainstay' has no attribute 'Apps'"):
        _ = mainstay.Apps


def test_importing_it_loads_none_of_its_parts() -> None:
    code = "import sys, mainstay; print([name for name in sys.modules if name.startswith('mainstay.')])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    # what keeps the parts from being loaded
    assert done.stdout.strip() == "['mainstay.lazy_exports']"
