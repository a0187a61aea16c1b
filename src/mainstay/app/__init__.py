"""App: what users hold.

Layer: above the kinds of job, below report and testing. Start from `App`.
"""

from .app import App
from .group import Group

__all__ = ["App", "Group"]
