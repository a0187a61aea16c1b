"""A contract for import-linter: packages are used through their faces.

The face of a package is its `__init__`. A module may import the top-level packages beside its own, and the modules that
the contract lists as faces of their own, but nothing below them. Single modules beside the packages are their own face.
The contracts of import-linter itself would need one entry for each package.
"""

from __future__ import annotations

import grimp
from importlinter import Contract, ContractCheck, fields, output


class FaceContract(Contract):
    """`faces` lists the modules below a package that other packages may import, each with its reason in a comment."""

    type_name = "faces"

    faces = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002 - the linter's signature
        (root,) = self.session_options["root_packages"]
        faces = self.faces or set()
        past = [
            (importer, imported, detail["line_number"])
            for imported in sorted(graph.modules)
            if _package(imported, root) and imported not in faces
            for importer in sorted(graph.find_modules_that_directly_import(imported))
            if _package(importer, root, itself=True) != _package(imported, root)
            for detail in graph.get_import_details(importer=importer, imported=imported)
        ]
        unused = sorted(face for face in faces if not _used_from_outside(graph, face, root))
        return ContractCheck(kept=not past and not unused, metadata={"past": past, "unused": unused})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported, line in check.metadata["past"]:
            package = ".".join(imported.split(".")[:2])
            output.print_error(f"{importer}:{line} imports {imported}; import it from {package}", bold=False)
        for face in check.metadata["unused"]:
            output.print_error(f"{face} is listed as a face, but no other package imports it", bold=False)


def _package(module: str, root: str, *, itself: bool = False) -> str:
    """The top-level package that a module is below; empty for the packages themselves, unless `itself` is set."""
    parts = module.removeprefix(f"{root}.").split(".")
    return parts[0] if itself or len(parts) > 1 else ""


def _used_from_outside(graph: grimp.ImportGraph, face: str, root: str) -> bool:
    if face not in graph.modules:
        return False
    importers = graph.find_modules_that_directly_import(face)
    return any(_package(importer, root, itself=True) != _package(face, root) for importer in importers)
