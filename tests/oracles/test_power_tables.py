"""Given the program that writes the power's coefficients, expect the committed header from it."""

import importlib.util
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[2] / "native/base"


def test_the_committed_tables_are_what_the_program_writes() -> None:
    """Given native/base/power_tables.py. Expect it to write power_tables.h as it lies there."""
    spec = importlib.util.spec_from_file_location("power_tables", NATIVE / "power_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.header() == (NATIVE / "power_tables.h").read_text()
