"""What the pages of reports share: one HTML file each, with nothing beside it, for screens, phones and paper."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files


def document(title: str, parts: Iterable[str], *, footer: str, styles: Sequence[str] = (), script: str = "") -> str:
    """A whole page. `styles` and `script` are texts that go into it; the script is allowed by its digest, and
    the page can load and run nothing else."""
    style = "".join((asset(__package__, "page.css"), *styles))
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + f"\n<footer>{escape(footer)}</footer>\n"
        + (f"<script>{script}</script>\n" if script else "")
        + "</body>\n</html>\n"
    )


def asset(package: str, name: str) -> str:
    """The text of a file inside a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")
