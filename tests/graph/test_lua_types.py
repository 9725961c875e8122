"""The types of Lua's objects, with debug information, compared with what a script made.

Nothing in Lua points to a table or a closure by its type. All pointers are to the struct with which all objects begin.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers, with_debug_info
from tests.corekit import kernel_core

#: Each turn makes two tables, one with an array of 12 values, a closure, the value that it captured, and a string.
SCRIPT = """
local count = tonumber(arg[1])
local kept = {}
for i = 1, count do
    local captured = {}
    for j = 1, 12 do captured[j] = i + j end
    kept[i] = {name = "a long text that is no key, made for object " .. i, other = function() return captured end}
end
collectgarbage()
os.execute("kill -ABRT $PPID")
while true do end
"""
MADE = {"struct Table": 2, "struct LClosure": 1, "struct UpVal": 1, "struct TString": 1, "struct TValue[]": 1}


def _counts(where: Path, count: int) -> tuple[Counter[str], Path]:
    where.mkdir()
    (where / "made.lua").write_text(SCRIPT)
    core = kernel_core(with_debug_info.lua(), where, "made.lua", str(count))
    rows = answers.answer(CoreFile(str(core)), "types", "--top", "1000")["tables"][0]["rows"]
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row["type"]] += row["count"]
    return counts, core


@pytest.mark.thorough("it builds Lua")
def test_the_types_of_an_interpreters_objects(tmp_path: Path) -> None:
    few, _core = _counts(tmp_path / "few", 1000)
    many, core = _counts(tmp_path / "many", 5000)
    assert {kind: many[kind] - few[kind] for kind in MADE} == {kind: 4000 * each for kind, each in MADE.items()}
    totals = answers.answer(CoreFile(str(core)), "typegraph")["totals"]
    assert totals["typed_bytes"] > 0.99 * totals["bytes"]
    assert totals["conflicts"] == 0
