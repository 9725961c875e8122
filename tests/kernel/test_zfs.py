"""OpenZFS in a guest, against what zdb and the module's own statistics said just before the crash.

OpenZFS is built for the guest's kernel, which takes ten minutes: only DMODS_KERNELS=all runs the tests that need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from dmods.base.sizes import human_size
from dmods.errors import UserError
from drgnext.kernel.system.openzfs import NEARLY_FULL
from drgnext.triage.kernel import triage_kernel
from fixtures import answers, kernel
from fixtures.kernel import zfs
from tests.kernel import crashed
from tests.kernel.memory import open_kernel
from tests.output.test_schema import wrong

#: The guests that were tried. 6.12 has OpenZFS 2.3.
GUESTS = ["6.1"]
MB = 1 << 20


def builds(test: Callable[..., None]) -> Any:
    """Mark a test that needs OpenZFS, for each guest."""
    for mark in (pytest.mark.thorough("it builds OpenZFS"), pytest.mark.seldom("it builds OpenZFS")):
        test = mark(test)
    return pytest.mark.parametrize("release", GUESTS)(test)


@cache
def opened(release: str, pressed: bool = False) -> tuple[zfs.ZfsGuest, Any]:
    guest = zfs.guest(release, pressed)
    return guest, open_kernel(guest)


def metaslabs(text: str) -> list[list[tuple[int, int, int]]]:
    """Return (number, offset, free bytes) of each metaslab of each vdev, as zdb -mmP says them."""
    found: list[list[tuple[int, int, int]]] = []
    for part in re.split(r"^\tvdev +\d+", text, flags=re.M)[1:]:
        lines = re.findall(r"^\tmetaslab +(\d+) +offset +([0-9a-f]+) +spacemap +\d+ +free +(\d+)", part, re.M)
        found.append([(int(number), int(offset, 16), int(free)) for number, offset, free in lines])
    return found


@builds
def test_the_cache_is_what_the_module_says(release: str) -> None:
    guest, subject = opened(release)
    arc, blocks = guest.kstat("arcstats"), guest.kstat("abdstats")
    told = {
        "size": arc["size"],
        "target": arc["c"],
        "lowest": arc["c_min"],
        "highest": arc["c_max"],
        "data": arc["data_size"],
        "metadata": arc["metadata_size"],
        "headers": arc["hdr_size"],
        "dbufs": arc["dbuf_size"],
        "dnodes": arc["dnode_size"],
        "bonus": arc["bonus_size"],
        "scatter": blocks["scatter_data_size"],
        "scatter_waste": blocks["scatter_chunk_waste"],
        "linear": blocks["linear_data_size"],
    }
    for command, *words in (("zfs",), ("memstat", "-v")):
        rows = answers.by_name(crashed.ask(subject, command, *words))["arc"]
        found = {row["name"]: row["bytes"] for row in rows}
        assert found.keys() - {"need_free"} == told.keys()
        # A group of transactions may have been written between what the guest read and the crash.
        differ = {name: (found[name], told[name]) for name in told if abs(found[name] - told[name]) > MB // 4}
        assert differ == {}
    pages = {row["bucket"]: row["bytes"] for row in answers.by_name(crashed.ask(subject, "memstat"))["summary"]}
    assert abs(pages["ZFS File Data"] - told["scatter"] - told["scatter_waste"]) <= MB // 4


@builds
def test_metaslabs_are_those_of_zdb(release: str) -> None:
    guest, subject = opened(release)
    answer = crashed.ask(subject, "zfs", "-v")
    assert wrong(answer) == []
    rows = answers.by_name(answer)["metaslabs"]
    vdevs = answers.by_name(answer)["pools"]
    for pool in ("tank", "lake"):
        said = metaslabs(guest.said[f"zdb {pool}"])
        mine = [row["vdev"] for row in vdevs if row["pool"] == pool]
        assert len(said) == len(mine) > 0
        for vdev, expected in zip(mine, said):
            each = [row for row in rows if (row["pool"], row["vdev"]) == (pool, vdev)]
            found = [(row["number"], int(row["start"], 16), row["size"] - row["allocated"]) for row in each]
            assert found == expected
            (whole,) = (row for row in vdevs if row["vdev"] == vdev)
            assert whole["metaslabs"] == len(expected)
            sizes = {row["size"] for row in each}
            (size,) = sizes
            full = sum((size - free) * 100 > 96 * size for *_place, free in expected)
            assert whole["nearly_full"] == full
            assert full > 5 if pool == "tank" else full == 0
    listed = {line.split("\t")[0]: line.split("\t") for line in guest.said["zpool list"].splitlines()}
    for pool in ("tank", "lake"):
        assert sum(row["allocated"] for row in vdevs if row["pool"] == pool) == int(listed[pool][2])


@builds
def test_one_pool(release: str) -> None:
    _guest, subject = opened(release)
    answer = crashed.ask(subject, "zfs", "tank")
    assert {row["pool"] for row in answers.by_name(answer)["pools"]} == {"tank"}
    with pytest.raises(UserError, match="no pool 'sea'"):
        crashed.ask(subject, "zfs", "sea")


def test_a_kernel_without_openzfs() -> None:
    subject = open_kernel(kernel.guest("6.1", crash="null"))
    with pytest.raises(UserError, match="the module zfs is not loaded"):
        crashed.ask(subject, "zfs")
    assert "arc" not in answers.by_name(crashed.ask(subject, "memstat", "-v"))


@builds
def test_triage_finds_a_cache_that_presses(release: str) -> None:
    """The plain guest has room: there the ARC may have what it likes."""
    assert triage_kernel(opened(release)[1], "arc").findings == []
    guest, subject = opened(release, pressed=True)
    found = triage_kernel(subject, "arc")
    (presses,) = found.findings
    said = guest.kstat("arcstats")
    assert presses.kind == "arc-presses"
    # The ARC still changes between its word and the crash.
    assert presses.weight == pytest.approx(said["size"], rel=0.03)
    assert f"limits {human_size(said['c_min'])} to {human_size(said['c_max'])}" in presses.what
    assert said["c_min"] == zfs.ARC_LEAST
    assert "zfs_arc_max" in presses.remedy


@builds
def test_triage_finds_the_pool_that_is_full(release: str) -> None:
    guest, subject = opened(release)
    found = triage_kernel(subject, "zfs")
    (full,) = found.findings
    assert (full.kind, full.subject) == ("zfs-full", "tank")
    slabs = [one for vdev in metaslabs(guest.said["zdb tank"]) for one in vdev]
    size = slabs[1][1] - slabs[0][1]  # of each: they lie one after the other
    assert full.weight == pytest.approx(sum(size - free for _number, _offset, free in slabs), rel=0.02)
    crowded = sum(free * 100 < size * (100 - NEARLY_FULL) for _number, _offset, free in slabs)
    assert f"{crowded} of {len(slabs)} metaslabs" in full.what
