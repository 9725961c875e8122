"""An allocator that dmods does not know, taught to it by a folder on the search path, in gdb."""

from __future__ import annotations

import json
from pathlib import Path

from fixtures.answers import by_name
from tests.allocators.stranger.test_stranger import HERE, KEPT, LEAKED, MORE_KEPT, MORE_LEAKED, PATH, dumped
from tests.corekit import compile_c
from tests.gdb.conftest import Gdb


def test_every_command_knows_it(gdb: Gdb, tmp_path: Path) -> None:
    program = compile_c(HERE / "bump.c", tmp_path / "bump", "-fno-builtin")
    first = dumped(program, tmp_path / "first", KEPT, LEAKED)
    last = dumped(program, tmp_path / "last", MORE_KEPT, MORE_LEAKED)
    lost = last.blocks["direct"]
    lines = (
        "findleaks",
        f"whatis {lost[0]:#x}",
        "walk leak",
        "heapsizes",
        "malloc_stats",
        "heapcheck",
        "types",
        "owners",
        f"growth {first.core} --by arena",
    )
    asked = [word for line in lines for word in ("-ex", "echo {cut}", "-ex", f"mdb {line} --json")]
    done = gdb("-x", "heapcmds.py", last.core, *asked, DMODS_ALLOCATORS=str(PATH))
    found = {one["command"]: one for one in map(json.loads, done.stdout.split("{cut}")[1:])}
    rows = {name: by_name(answer) for name, answer in found.items()}
    assert found["findleaks"]["totals"]["leaked_bytes"] == (96 + 208) * MORE_LEAKED
    assert "bump-96, leaked directly" in json.dumps(rows["whatis"])
    assert {row["address"] for row in rows["walk"]["leak"]} == {f"{address:#x}" for address in lost}
    assert found["heapsizes"]["totals"]["live_bytes"] == last.live_bytes
    assert found["malloc_stats"]["totals"]["bump_allocated_bytes"] == last.live_bytes
    assert found["heapcheck"]["totals"]["problems"] == 0
    (customers,) = (row for rows_ in rows["types"].values() for row in rows_ if row.get("type") == "struct customer")
    assert customers["count"] == MORE_KEPT + 1
    (held,) = (row for rows_ in rows["owners"].values() for row in rows_ if row.get("owner") == "bump`customers")
    assert held["count"] == MORE_KEPT + 1
    (grown,) = (row for row in rows["growth"]["growth"] if row["key"] == "bump")
    assert grown["growth_bytes"] == last.live_bytes - first.live_bytes
