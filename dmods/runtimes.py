"""Language runtimes that keep a heap of their own beside malloc's: what is said of them."""

from __future__ import annotations

from dmods._engine import elf_section
from dmods.target import Target


def notes(target: Target) -> list[str]:
    """A line for each runtime in the program whose heap is not walked. Its memory is searched for pointers like any
    other, so that what it holds is no leak."""
    program = next((m for m in target.modules() if m.path == target.executable and m.file is not None), None)
    # The linker writes it into every Go program since 1.13 (cmd/link, buildinfo), and strip leaves it there.
    if program is None or program.file is None or elf_section(program.file, ".go.buildinfo") is None:
        return []
    return [
        "a Go program: Go's own heap is not walked, only malloc's (cgo); what Go's memory points to counts as "
        "reachable, whether Go still needs it or not"
    ]
