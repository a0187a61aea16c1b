"""Outputs as the layout before the first one that had checksums kept them."""

from __future__ import annotations

import json

from mainstay.outputs import OutputStore, Unit
from mainstay.outputs.layout import legacy_folder


async def write_legacy(store: OutputStore, unit: Unit, **files: bytes) -> str:
    folder = legacy_folder(unit)
    about = {"study": unit.study, "code": unit.code, "params": dict(unit.params), "seed": unit.seed}
    await store.blobs.write(f"{folder}/unit.json", json.dumps(about).encode())
    for name, content in files.items():
        await store.blobs.write(f"{folder}/{name}", content)
    return folder
