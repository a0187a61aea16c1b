"""Outputs of jobs: complete files at addresses that are known beforehand, with digests that prove them intact.

Layer: beside the stores, below control. Start from `open_outputs`, `Unit` and `OutputStore`; `layout` has the paths,
`lookup` the states of outputs.
"""

from .address import Unit
from .audit import OutputAudit, audit
from .blobs import OutputFile
from .entry import Origin, UnitEntry
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
