"""Loop devices: their files, and the types of their module out of the dump beside a vmlinux."""

from __future__ import annotations

from typing import Any

import drgn
import pytest

from dmods.command import KERNEL
from drgnext.kernel.dump.target import Kernel
from fixtures import answers
from tests.kernel.memory import FEWER
from tests.kernel.test_busy import Case

pytestmark = pytest.mark.thorough("it needs a busy guest")


@pytest.fixture(scope="module", params=FEWER)
def case(request: Any) -> Case:
    return Case(request.param)


def test_a_loop_device_has_its_file(case: Case) -> None:
    (loop,) = (row for row in case.tables("disks")["disks"] if row["kind"] == "loop")
    names = ("loop/backing_file", "loop/offset", "size")
    file, offset, size = (case.said[f"/sys/block/loop0/{name}"].strip() for name in names)
    assert (loop["name"], loop["on"]) == ("loop0", file) == ("loop0", "/mnt/images/one.img")
    assert (loop["sector"], loop["size"]) == (int(offset) // 512, int(size) * 512)


def test_types_of_the_dump_come_behind_those_of_vmlinux(case: Case) -> None:
    """Nobody gives the debug information of the module loop. 5.10 has no types of modules either."""
    prog = drgn.Program()
    prog.set_core_dump(str(case.guest.vmcore))
    prog.load_debug_info([str(case.guest.kernel.vmlinux)])
    before = prog.symbol("workqueues").address, prog["init_task"].address_, prog.type("struct request_queue").size
    disks = answers.by_name(answers.answer(Kernel(prog), "disks", side=KERNEL))["disks"]
    all_disks = case.tables("disks")["disks"]
    lacking = {"loop"} if case.guest.kernel.name == "5.10" else set()
    assert disks == [row for row in all_disks if row["kind"] not in lacking]
    assert "loop" in {row["kind"] for row in all_disks}
    after = prog.symbol("workqueues").address, prog["init_task"].address_, prog.type("struct request_queue").size
    assert after == before
