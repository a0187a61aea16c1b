"""Outputs of jobs: complete files at addresses that are known beforehand, with digests that prove them intact.

Layer: beside the stores, below control. Start from `open_outputs`, `Unit` and `OutputStore`; `layout` has the paths,
`lookup` the states of outputs.
"""

from .address import Unit
from .audit import OutputAudit, audit
from .blobs import Blobs, OutputFile
from .entry import ENTRY_PREFIX, SOURCE_DIGEST, Origin, UnitEntry
from .factory import open_blobs, open_outputs
from .layout import LAYOUT_VERSION, files_of, manifest_path, output_path, unit_folder
from .lookup import OutputFinding, OutputState, UnitFindings, Verify
from .manifest import Manifest, ManifestGroup, load_manifest, save_manifest
from .migration import OutputMigration, migrate
from .scratch import Outputs, Scratch
from .store import OutputStore

__all__ = [
    "ENTRY_PREFIX",
    "LAYOUT_VERSION",
    "SOURCE_DIGEST",
    "Blobs",
    "Manifest",
    "ManifestGroup",
    "Origin",
    "OutputAudit",
    "OutputFile",
    "OutputFinding",
    "OutputMigration",
    "OutputState",
    "OutputStore",
    "Outputs",
    "Scratch",
    "Unit",
    "UnitEntry",
    "UnitFindings",
    "Verify",
    "audit",
    "files_of",
    "load_manifest",
    "manifest_path",
    "migrate",
    "open_blobs",
    "open_outputs",
    "output_path",
    "save_manifest",
    "unit_folder",
]
