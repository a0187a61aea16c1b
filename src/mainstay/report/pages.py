"""What the pages of reports share: one HTML file each, with nothing beside it, for screens, phones and paper."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files


def document(title: str, parts: Iterable[str], *, footer: str, styles: Sequence[str] = (), script: str = "") -> str:
    """A whole page. `styles` and `script` name files of this package; the script is allowed by its digest, and
    whatever else a page might be made to load or run is not."""
    style = "".join(_read(name) for name in ("page.css", *styles))
    code = _read(script) if script else ""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    if code:
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + f"\n<footer>{escape(footer)}</footer>\n"
        + (f"<script>{code}</script>\n" if code else "")
        + "</body>\n</html>\n"
    )


def _read(name: str) -> str:
    return files(__package__).joinpath(*name.split("/")).read_text(encoding="utf-8")
