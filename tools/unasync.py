"""Generate the synchronous client from the asynchronous one: `make generate`.

The asynchronous client is the source: `AsyncClient`, its handles and its resources. The synchronous one is the same
text with every `await` taken out, so the two cannot drift apart. `--check` writes nothing and fails if a generated file
is not current; `make check` and the tests run it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "src/mainstay/client"

#: each asynchronous module, and the module that is generated from it
MODULES = {
    "async_client.py": "sync_client.py",
    "async_handle.py": "sync_handle.py",
    "async_resources.py": "sync_resources.py",
}

# applied in order to the whole text
_RULES = [
    (r"  # noqa: ASYNC109[^\n]*", ""),
    (r"\bawait asyncio\.to_thread\(([\w.]+)\)", r"\1()"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    # a generator of the standard library also names what it is sent and what it returns
    (r"\bAsyncGenerator\[(.+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\ba(close|read|iter_bytes)\(", r"\1("),
    (r"\basyncio\.run\((.+)\)\n", r"\1\n"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\bimport asyncio\b", "import time"),
    (r"\bfrom \.async_", "from .sync_"),
    (r"\bwith an event loop\b", "without an event loop"),
    (r"\bAn (?=Client\b)", "A "),
    (r"\ban (?=Client\b)", "a "),
]
_HEADER = "# Generated from {} by `make generate`. Do not edit.\n\n"


def generated(source: Path) -> str:
    """The synchronous form of an asynchronous module, formatted as the rest of the code."""
    text = source.read_text(encoding="utf-8")
    for pattern, replacement in _RULES:
        text = re.sub(pattern, replacement, text)
    name = str(source.with_name(MODULES[source.name]).relative_to(ROOT))
    # the order of the imports changes with their names; `yield from` is only possible in a synchronous generator
    fixed = _ruff("check", "--fix-only", "--quiet", "--select=I,RUF022,UP028", "--unsafe-fixes", name=name, text=text)
    return _ruff("format", "--quiet", name=name, text=_HEADER.format(source.name) + fixed)


def outdated() -> list[Path]:
    """The generated files that are not current."""
    return [target for target, text in _targets() if not target.exists() or target.read_text(encoding="utf-8") != text]


def main(check: bool) -> int:
    """Write the generated files; or only compare them, and return 1 if one is not current."""
    if check:
        stale = outdated()
        for target in stale:
            print(f"{target.relative_to(ROOT)} is not current; run `make generate`")
        return 1 if stale else 0
    for target, text in _targets():
        target.write_text(text, encoding="utf-8")
    return 0


def _targets() -> list[tuple[Path, str]]:
    return [(FOLDER / target, generated(FOLDER / source)) for source, target in MODULES.items()]


def _ruff(command: str, *options: str, name: str, text: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    done = subprocess.run(
        [ruff, command, *options, "--stdin-filename", name, "-"],
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
