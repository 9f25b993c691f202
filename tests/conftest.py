"""Which tests run side by side: those of one file, or of one set in a file, stay on one worker and share a cache."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name the group of each test for ``pytest -n 2 --dist loadgroup``: a notebook's cells must run in their order."""
    for item in items:
        set_name = getattr(item, "callspec", None) and item.callspec.params.get("set_name")
        item.add_marker(pytest.mark.xdist_group(f"{item.path.name}{' ' + set_name if set_name else ''}"))
