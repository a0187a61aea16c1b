"""Outputs of jobs: written whole, kept under addresses known beforehand, and proven intact.

Layer: beside the stores, below control. Start from `open_outputs`, `Unit` and `OutputStore`; `layout` says where
things are, `looking` what can be said of them.
"""

from .address import Unit
from .auditing import Audit, audit
from .entry import About, Entry, File
from .layout import output_path, unit_folder
from .looking import Finding, Seen
from .manifest import Group, Manifest, load_manifest, save_manifest
from .migrating import Migration, migrate
from .opening import open_outputs
from .store import OutputStore
from .writing import Outputs

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
