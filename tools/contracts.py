"""A contract for import-linter that pyproject.toml uses beside its own ones."""

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class StandardLibrary(Contract):
    """A contract that packages hold when they import nothing but themselves and Python's standard library.

    Attributes:
        packages: their full names.
        optional: other packages that they may import, since they go on where these are missing.
    """

    type_name = "standard_library"
    packages: set[str] = fields.SetField(subfield=fields.StringField())  # type: ignore[assignment] # a descriptor
    optional: set[str] = fields.SetField(subfield=fields.StringField(), required=False, default=set())  # type: ignore[assignment]

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Return the imports that break the contract, as ``importer -> imported``."""
        known = sys.stdlib_module_names | self.optional
        broken = [
            f"{module} -> {imported}"
            for package in sorted(self.packages)
            for module in sorted({package} | graph.find_descendants(package))
            for imported in sorted(graph.find_modules_directly_imported_by(module))
            if not f"{imported}.".startswith(f"{package}.") and imported.partition(".")[0] not in known
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print those imports."""
        for line in check.metadata["broken"]:
            output.print_error(line)
