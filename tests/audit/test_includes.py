"""The layers of audit/ and the direction of its includes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.audit.auditor import ROOT

AUDIT = ROOT / "audit"
LAYERS = ["", "dump", "records", "unwind", "hooks"]  # a layer uses only itself and the layers before it


def includes(path: Path) -> set[Path]:
    """Return the files of audit/ that a file includes."""
    names = re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE)
    return {(path.parent / name).resolve().relative_to(AUDIT) for name in names}


def modules() -> dict[Path, set[Path]]:
    """Return the modules of audit/ with those that each uses. A module is a header with its source."""
    found: dict[Path, set[Path]] = {}
    for path in [*AUDIT.rglob("*.h"), *AUDIT.rglob("*.c")]:
        module = path.relative_to(AUDIT).with_suffix("")
        used = {other.with_suffix("") for other in includes(path)}
        found.setdefault(module, set()).update(used - {module})
    return found


def layer(module: Path) -> int:
    return LAYERS.index("" if module.parent == Path() else str(module.parent))


def test_a_layer_uses_only_layers_before_it() -> None:
    used = modules()
    assert {layer(module) for module in used} == set(range(len(LAYERS)))
    assert [(module, other) for module in used for other in used[module] if layer(other) > layer(module)] == []


def test_no_module_uses_itself_through_others() -> None:
    left = modules()
    assert Path("records/stacks") in left
    while left:
        lowest = {module for module, used in left.items() if not used & left.keys()}
        assert lowest, f"a circle among {sorted(map(str, left))}"
        left = {module: used for module, used in left.items() if module not in lowest}
