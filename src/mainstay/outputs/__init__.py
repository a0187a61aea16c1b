"""Outputs of jobs: written whole, kept under addresses known beforehand, and proven intact.

Layer: beside the stores, below control. Start from `open_outputs`, `Unit` and `OutputStore`; `layout` says where
things are, `lookup` what can be said of them.
"""

from .address import Unit
from .audit import OutputAudit, audit
from .entry import Origin, OutputFile, UnitEntry
from .factory import open_outputs
from .layout import output_path, unit_folder
from .lookup import OutputFinding, UnitFindings
from .manifest import Manifest, ManifestGroup, load_manifest, save_manifest
from .migration import OutputMigration, migrate
from .scratch import Outputs
from .store import OutputStore

__all__ = [
    "Manifest",
    "ManifestGroup",
    "Origin",
    "OutputAudit",
    "OutputFile",
    "OutputFinding",
    "OutputMigration",
    "OutputStore",
    "Outputs",
    "Unit",
    "UnitEntry",
    "UnitFindings",
    "audit",
    "load_manifest",
    "migrate",
    "open_outputs",
    "output_path",
    "save_manifest",
    "unit_folder",
]
