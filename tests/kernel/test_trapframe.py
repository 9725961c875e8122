"""``trapframe`` of kernels that died in every way, and the search for pt_regs where nothing can unwind."""

from __future__ import annotations

import pytest

from tests.kernel.crashed import DEATHS, TRAPS, died


@pytest.mark.parametrize(("release", "crash", "dump"), DEATHS)
def test_every_pt_regs_is_found_twice_and_no_other(release: str, crash: str, dump: str) -> None:
    """The walk finds them, and so does a scan of every word of the stacks, which uses no unwind tables."""
    death = died(release, crash, dump)
    assert len(death.trapframe["tables"]) == 1
    kinds = [(row["trap"], int(row["pc"], 16), row["found"]) for row in death.traps]
    *traps, user = kinds
    assert len(traps) == len(TRAPS[crash])
    for found, expected in zip(traps, TRAPS[crash]):
        assert found[2] == "walk and scan"
        if expected is not None:
            assert found[0] == expected.kind
            assert found[1] == (0 if expected.at == "jump" else death.at(expected.at))
    assert user == ("system call", int(death.init["totals"]["user_pc"], 16), "walk and scan")


@pytest.mark.parametrize(("release", "crash", "dump"), DEATHS)
def test_the_stacks_are_the_right_ones(release: str, crash: str, dump: str) -> None:
    rows = died(release, crash, dump).traps
    stacks = [row["stack_name"].partition(" ")[0] for row in rows]
    expected = {"softirq": ["irq", "task", "task"], "hardirq": ["irq", "task", "task"], "nmi": ["NMI", "task"]}
    assert stacks == expected.get(crash, ["task"] * len(rows))


@pytest.mark.thorough("it needs a guest that jumped to NULL")
@pytest.mark.parametrize("release", ["6.1", "6.12", "5.10", "sid"])
def test_drgn_takes_the_caller_of_a_jump_to_null_for_interrupted(release: str) -> None:
    lie = died(release, "jump").traps[0]["lie"]
    assert "drgn names the code after the call in its caller: guest_crash_jump" in lie


@pytest.mark.parametrize("release", ["6.1", "6.12"])
def test_a_trapped_pc_taken_for_a_return_address_is_the_line_before(release: str) -> None:
    null = died(release, "null").trapframe["tables"][0]["rows"][0]
    line = int(null["source"].rpartition(":")[2])
    assert "pc taken for a return address: dmods_guest`guest_crash_null+" in null["lie"]
    assert f":{line})" not in null["lie"]
