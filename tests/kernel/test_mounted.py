"""Mounts of btrfs, whose source is what the file system says and not what mount(2) was given."""

from __future__ import annotations

import pytest

from dmods.command import KERNEL
from fixtures import answers
from fixtures.kernel import mounted
from tests.kernel.memory import open_kernel

OTHERS = pytest.mark.seldom("it needs the guest of another kernel")


@pytest.mark.thorough("it needs a guest with btrfs")
@pytest.mark.parametrize("release", ["6.1", *(pytest.param(name, marks=OTHERS) for name in ("5.10", "6.12", "sid"))])
def test_sources_are_those_of_proc_mounts(release: str) -> None:
    guest = mounted.guest(release)
    told = [tuple(line.split()[:3]) for line in guest.said["/proc/mounts"].splitlines() if line]
    report = answers.answer(open_kernel(guest), "mounts", side=KERNEL)
    rows = answers.by_name(report)["mounts"]
    assert [(row["source"], row["target"], row["type"]) for row in rows] == told
    btrfs = {source for source, _target, kind in told if kind == "btrfs"}
    assert len([kind for _source, _target, kind in told if kind == "btrfs"]) == 3
    assert len(btrfs) == 1  # though one of the three was mounted by the name of the other device
