"""AArch64: the places where guests trapped, and their stacks, compared with what guest and kernel say.

test_memstat_truth.py tests memstat there.
"""

from __future__ import annotations

import re

import pytest

from tests.kernel.crashed import Death, died

pytestmark = pytest.mark.thorough("it needs the kernel of AArch64")

RELEASE = "6.1-arm64"
#: The cause of each death, as the kernel's message begins.
CAUSES = {
    "null": "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000028",
    "softirq": "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000028",
    "hardirq": "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000028",
    "jump": "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000000",
    "bug": "kernel BUG at ",
}


@pytest.fixture(params=CAUSES)
def death(request: pytest.FixtureRequest) -> Death:
    return died(RELEASE, request.param)


def printed(death: Death) -> list[str]:
    """Return function+offset of the kernel's own trace, the trapping instruction first."""
    lines = [re.sub(r"^\[ *\d+\.\d+\] ?", "", line) for line in death.guest.console.splitlines()]
    start = next(n for n, line in enumerate(lines) if line == "Call trace:") + 1
    end = next(n for n, line in enumerate(lines[start:], start) if line.startswith("Code:"))
    found = [re.fullmatch(r" (\S+?)(?:/0x[0-9a-f]+)?(?: \[\w+\])?", line) for line in lines[start:end]]
    return [match[1] for match in found if match]


def test_the_cause_and_the_place(death: Death) -> None:
    record = death.record
    crash = death.guest.crash
    assert record["message"].startswith(CAUSES[crash])
    if crash == "jump":
        assert int(record["pc"], 16) == 0
        assert int(record["call"], 16) == death.at("jump")
        assert record["call_where"].startswith("dmods_guest`guest_crash_jump+")
    else:
        assert int(record["pc"], 16) == death.at(crash)
        assert record["where"].startswith("dmods_guest`guest_")


def test_the_registers_are_those_the_kernel_printed(death: Death) -> None:
    oops = death.guest.console.partition("Internal error: Oops")[2].partition("Call trace:")[0]
    said = dict(re.findall(r"\b(x\d+|sp|pstate) ?: ([0-9a-f]+)", oops))
    names = [*(f"x{n}" for n in range(30)), "sp", "pstate"]
    assert {name: int(death.record[name], 16) for name in names} == {name: int(said[name], 16) for name in names}


def test_the_frames_are_those_that_the_kernel_printed(death: Death) -> None:
    """The kernel leaves out frames that only the link register shows. dmods marks such a frame as a guess."""
    trap = next(n for n, row in enumerate(death.frames) if "trapped" in row["note"])
    sure = [row for row in death.frames[trap:] if "guess" not in row["note"] and "jumped to" not in row["note"]]
    assert [row["name"].rpartition("`")[2] for row in sure] == printed(death)


def test_the_interrupted_function_is_a_frame() -> None:
    """The timer ran on the interrupts' own stack. The walk goes on to the stack that was interrupted."""
    death = died(RELEASE, "softirq")
    interrupted = [int(row["pc"], 16) for row in death.frames if "interrupted by" in row["note"]]
    assert interrupted[-1:] == [death.at("softirq_spin")]
