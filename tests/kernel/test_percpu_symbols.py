"""Per-CPU variables, and symbols in freed memory. The witnesses are the kernel's own memory and log."""

from __future__ import annotations

from typing import Any

import pytest

from dmods.errors import UsageError
from drgnext.commands._slabs import address_asked
from drgnext.kernel.slabs.locate import Places
from drgnext.kernel.slabs.objects import slab_objects
from fixtures import answers, kernel
from tests.kernel import crashed
from tests.kernel.memory import open_kernel

RELEASES = ("6.1", "5.10", "sid", "6.1-arm64")  # symbols from 0 on, and ordinary addresses


def sentences(answer: dict[str, Any]) -> list[str]:
    return [row["sentence"] for row in answers.by_name(answer)["whatis"]]


@pytest.mark.parametrize("release", RELEASES)
def test_each_cpu_has_its_own(release: str) -> None:
    """The variable cpu_number holds the number of its CPU."""
    subject = open_kernel(kernel.guest(release))
    answer = crashed.ask(subject, "whatis", "cpu_number")
    assert sentences(answer) == ["cpu_number is a per-CPU variable of 4 bytes: each CPU has its own"]
    rows = answers.by_name(answer)["percpu"]
    assert [row["cpu"] for row in rows] == [0, 1]
    addresses = [int(row["address"], 16) for row in rows]
    assert [int.from_bytes(subject.prog.read(address, 4), "little") for address in addresses] == [0, 1]
    places = Places(slab_objects(subject))
    for cpu, address in enumerate(addresses):
        assert f"the per-CPU variable cpu_number of CPU {cpu}" in [place.text for place in places.at(address)]
        assert f"the per-CPU variable cpu_number+0x2 of CPU {cpu}" in [place.text for place in places.at(address + 2)]
    inside = answers.by_name(crashed.ask(subject, "whatis", "cpu_number+2"))["percpu"]
    assert [int(row["address"], 16) - 2 for row in inside] == addresses
    with pytest.raises(UsageError, match="cpu_number is a per-CPU variable, and each CPU has its own"):
        address_asked(subject, "cpu_number")


@pytest.mark.parametrize("release", RELEASES)
def test_freed_memory_has_no_symbols(release: str) -> None:
    guest = kernel.guest(release)
    assert "Freeing unused kernel" in guest.console
    subject = open_kernel(guest)
    places = Places(slab_objects(subject))
    freed, kept = (int(subject.prog.symbol(name).address) for name in ("start_kernel", "init_task"))
    assert (places.is_freed(freed), places.is_freed(kept)) == (True, False)
    assert [place.kind for place in places.at(freed) if place.kind == "symbol"] == []
    assert "init_task" in [place.text for place in places.at(kept)]
