"""Renders the templates of load reports."""

from __future__ import annotations

from functools import cache
from typing import Any

import jinja2
import markupsafe

from ...report import asset, render_page, template_environment
from .text import latency_text
from .words import one_line, rate_text, share_text, size_text, time_text


def html_page(template: str, *, title: str, footer: str, **values: Any) -> str:
    """A whole page in the style of load reports, with the script that shows the values of its charts."""
    return render_page(
        _environment(),
        template,
        title=title,
        footer=footer,
        styles=[asset(__package__, "load.css")],
        script=asset(__package__, "hover.js"),
        **values,
    )


def html_fragment(template: str, **values: Any) -> markupsafe.Markup:
    """A part of a report, for a page around it."""
    return markupsafe.Markup(_environment().get_template(template).render(**values))  # noqa: S704 - escaped by Jinja


@cache
def _environment() -> jinja2.Environment:
    environment = template_environment(__package__)
    environment.filters.update(
        count="{:,}".format,
        latency=latency_text,
        line=one_line,
        rate=rate_text,
        share=share_text,
        size=size_text,
        time=time_text,
    )
    return environment
