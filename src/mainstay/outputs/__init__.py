"""Outputs of jobs: written whole, kept under addresses known beforehand, and proven intact.

Layer: beside the stores, below control. Start from `open_outputs`, `Unit` and `OutputStore`; `layout` says where
things are, `looking` what can be said of them.
"""

from .address import Unit
from .audit import Audit, audit
from .entry import About, Entry, File
from .factory import open_outputs
from .layout import output_path, unit_folder
from .lookup import Finding, Seen
from .manifest import Group, Manifest, load_manifest, save_manifest
from .migration import Migration, migrate
from .scratch import Outputs
from .store import OutputStore

__all__ = [
    "About",
    "Audit",
    "Entry",
    "File",
    "Finding",
    "Group",
    "Manifest",
    "Migration",
    "OutputStore",
    "Outputs",
    "Seen",
    "Unit",
    "audit",
    "load_manifest",
    "migrate",
    "open_outputs",
    "output_path",
    "save_manifest",
    "unit_folder",
]
