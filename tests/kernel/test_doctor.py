"""doctor of a kernel's dump: where symbols and types come from, and what is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures import answers, kernel
from tests.kernel.carried import btf_copy, system_map


def doctor(*words: object) -> dict[str, tuple[str, str]]:
    done = answers.dmods("doctor", *words, "--json")
    assert done.returncode == 0, done.stderr
    return {row["what"]: (row["found"], row["help"]) for row in json.loads(done.stdout)["tables"][0]["rows"]}


def test_what_the_kernel_carries() -> None:
    guest = kernel.guest("6.1", "null")
    found = doctor(guest.vmcore)
    assert found["kernel"][0] == f"{guest.vmcore.resolve()}: {guest.release}"
    assert found["symbols"][0].endswith("(kallsyms)")
    assert found["types"][0].endswith("(BTF)")
    assert "source lines and inlined functions" in found["lost"][0]
    assert found["lost"][1] == f"apt-get install linux-image-{guest.release}-dbg"
    # The guest's own module is built without BTF.
    assert found["modules"][0] == "12 loaded: 11 with types that they carry (BTF), 1 without types (dmods_guest)"
    assert found["drgn's own Python"][0].endswith("loads the engine")


@pytest.mark.thorough("it loads the debug information of all modules")
def test_vmlinux_loses_nothing() -> None:
    guest = kernel.guest("6.1", "null")
    found = doctor(guest.vmcore, *(word for path in (guest.vmlinux, *guest.modules) for word in ("-s", path)))
    assert found["symbols"][0] == f"vmlinux: {guest.vmlinux.resolve()}"
    assert found["types"][0] == f"vmlinux (DWARF): {guest.vmlinux.resolve()}"
    assert found["modules"] == ("12 loaded: 12 with debugging information", None)
    assert "lost" not in found


@pytest.mark.thorough("it needs kernel 6.12")
def test_files_of_the_user(tmp_path: Path) -> None:
    guest = kernel.guest("6.12", "null")
    symbols, types = system_map(guest, tmp_path), btf_copy(guest, tmp_path)
    found = doctor(guest.vmcore, "--symbols", symbols, "--btf", types)
    assert (found["symbols"][0], found["types"][0]) == (str(symbols), str(types))


@pytest.mark.thorough("it needs an arm64 kernel")
def test_nothing_serves() -> None:
    found = doctor(kernel.guest("6.1-arm64", "null").vmcore)
    assert found["symbols"][0].startswith("none: the symbol table has no ")
    assert "--symbols System.map" in found["symbols"][1]
    assert found["types"][0] == "none: the symbols say where they are"
    assert found["lost"][0].startswith("panicinfo shows the log")
    assert "modules" not in found
