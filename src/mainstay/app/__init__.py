"""App: the object on which users declare tasks and through which they submit jobs.

Layer: above the kinds of job, below testing. Start from `App`.
"""

from .app import App
from .group import Group

__all__ = ["App", "Group"]
