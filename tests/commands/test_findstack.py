"""``findstack`` as a user sees it: the literal lines, in a process of its own."""

from __future__ import annotations

from typing import Any

from fixtures import cores
from fixtures.answers import printed, typed


def test_the_trapped_frame_stands_out() -> None:
    core = cores.take("frames", mode="handler")
    facts = core.truth.facts
    lines = printed("findstack", str(core.core)).splitlines()
    head = lines[0].split()
    assert lines[0].startswith(f"stack pointer for thread {core.pid} (frames): 0x")
    assert lines[1].split()[0] == head[-1]
    words = {line.split()[2].partition("+")[0]: line.split(maxsplit=3) for line in lines[1:]}
    assert words["touch_null"][:2] == [hex(facts["sp"]), hex(facts["pc"])]
    assert words["touch_null"][3].endswith("] <-- interrupted by SIGSEGV SEGV_MAPERR at 0x18")
    assert [line for line in lines if "<--" in line] == [line for line in lines if "touch_null" in line]
    assert words["libc.so.6`__restore_rt"][1] == hex(facts["return9"])
    assert words["libc.so.6`__restore_rt"][3].strip() == "(signal handler called)"
    assert [name for name in words if name in ("inner", "middle", "outer", "main", "_start")] == [
        "inner",
        "middle",
        "outer",
        "_start",
    ]
    assert words["middle"][:2] == [hex(facts["cfa3"]), hex(facts["return3"])]


def test_a_guess_says_so() -> None:
    for mode, guess in (("call", "jump to where no code is"), ("bare", "found by looking"), ("jit", "frame pointer")):
        lines = printed("findstack", str(cores.take("frames", mode=mode).core)).splitlines()
        (line,) = [line for line in lines if "(guess: " in line]
        assert guess in line


def test_json_has_registers_and_why_there_are_no_more_frames() -> None:
    core = cores.take("frames", mode="handler")
    answer: dict[str, Any] = typed("findstack", "-v", str(core.core))
    (table,) = answer["tables"]
    (thread,) = table["rows"]
    assert len(thread["stack"]) == answer["totals"]["frames"]
    assert thread["end"] == answer["totals"]["end"] == "the outermost frame"
    assert thread["truncated"] is False
    (trapped,) = [frame for frame in thread["stack"] if frame["pc"] == hex(core.truth.facts["pc"])]
    assert (trapped["registers"]["rbx"], trapped["found"]) == (hex(core.truth.facts["rbx"]), "signal")
    assert trapped["exact"] is True
    assert trapped["module"] == "frames"


def test_the_limit_and_another_thread() -> None:
    core = cores.take("frames", mode="overflow")
    lines = printed("findstack", "-n", "5", str(core.core)).splitlines()
    assert len(lines) == 7
    assert lines[-1] == "... (the frame limit was reached: -n N shows more)"
    answer: dict[str, Any] = typed("findstack", "-n", "5", str(core.core))
    assert answer["tables"][0]["rows"][0]["truncated"] is True
    whole: dict[str, Any] = typed("findstack", "-n", "100000", str(core.core))
    assert whole["tables"][0]["rows"][0]["truncated"] is False
    core = cores.take("frames", mode="raise")
    assert "raise" in printed("findstack", str(core.core))
    assert "inner" in printed("findstack", str(core.core), str(core.pid))
