"""The template engine of every HTML page: reports and dashboard use one environment with one set of rules.

Jinja takes some 30 ms to import, so commands import this module when they write a page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import jinja2


def template_environment(package: str, *, prefixes: Mapping[str, str] | None = None) -> jinja2.Environment:
    """An environment for the templates in the folder `templates` of a package. Values are escaped, and a name that is
    not defined is an error. `prefixes` adds the templates of other packages: `{"batch": "mainstay.batch.web"}` makes
    `batch/batches.html` one of them. The templates of this package are found as `report/page.html`.

    >>> template_environment("mainstay.report").from_string("{{ name }}").render(name="<b>")
    '&lt;b&gt;'
    """
    packages = {"report": __package__, **(prefixes or {})}
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [
                jinja2.PackageLoader(package, "templates"),
                jinja2.PrefixLoader(
                    {prefix: jinja2.PackageLoader(name, "templates") for prefix, name in packages.items()}
                ),
            ]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def asset(package: str, name: str) -> str:
    """The text of a file inside a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def render_page(
    environment: jinja2.Environment,
    template: str,
    *,
    title: str,
    footer: str,
    styles: Sequence[str] = (),
    script: str = "",
    **values: Any,
) -> str:
    """Render a template that extends `report/page.html` into one HTML file for screens, phones and paper. `styles` and
    `script` are texts that become part of it."""
    return environment.get_template(template).render(
        title=title,
        footer=footer,
        style="".join((asset(__package__, "page.css"), *styles)),
        script=script,
        policy=_policy(script),
        **values,
    )


def _policy(script: str) -> str:
    """The content security policy of a page: it runs this one script, by its digest, and can load nothing.

    >>> _policy("")
    "default-src 'none'; style-src 'unsafe-inline'"
    """
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    if not script:
        return policy
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"{policy}; script-src 'sha256-{digest}'"


__all__ = ["asset", "render_page", "template_environment"]
