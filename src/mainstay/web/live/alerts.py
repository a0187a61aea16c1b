"""The alert rules that come with Mainstay."""

from __future__ import annotations

from importlib.resources import files


def alert_rules() -> str:
    """A file of Prometheus rules for the metrics of the server.

    >>> "MainstayOldestPending" in alert_rules()
    True
    """
    return files(__package__).joinpath("alerts.yml").read_text(encoding="utf-8")


__all__ = ["alert_rules"]
