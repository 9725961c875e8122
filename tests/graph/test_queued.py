"""The owners of a long queue whose messages an array holds as well (queued.c), as in rsyslog's queue of an action."""

from __future__ import annotations

import time
from pathlib import Path

from dmods.corefile.target import CoreFile
from dmods.graph.owners.heap_owners import find_owners
from fixtures.limits import HANG_CPU
from tests.corekit import HERE, compile_c, kernel_core


def test_a_queue_as_long_as_the_heap_takes_no_time_in_its_square(tmp_path: Path) -> None:
    program = compile_c(HERE / "graph" / "queued.c", tmp_path / "queued", "-g0")
    core = kernel_core(program, tmp_path, output=tmp_path / "said")
    count = int((tmp_path / "said").read_text())
    began = time.process_time()
    owners = find_owners(CoreFile(str(core)))
    assert time.process_time() - began < HANG_CPU
    lines = {tuple(root.name for root in line.roots): line.count for line in owners.lines}
    for each in ("1", "2"):
        queue, index = f"queued`queue_{each}", f"queued`all_{each}"
        # Both lead to the messages, and neither keeps them alive.
        assert [lines.get(names) for names in ((queue,), (index,), (index, queue))] == [count, 1, count]
