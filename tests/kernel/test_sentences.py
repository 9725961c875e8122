"""Guests of which the kernel says in its own words why it dies, and two CPUs that die at once.

tests/kernel/test_klog.py has such logs for the quick run.
"""

from __future__ import annotations

import re

import pytest

from fixtures import answers
from tests.kernel.crashed import died

#: What the kernel prints first of each death.
FIRST = {
    "fortify": "detected buffer overflow in memset",
    "listdel": "list_del corruption. ",
    "usercopy": "usercopy: Kernel memory exposure attempt detected from SLUB object 'kmalloc-8' (offset 0, size 100)!",
    "execute": "kernel tried to execute NX-protected page",
    "refcount": "refcount_t: underflow; use-after-free.",
}


@pytest.mark.parametrize("crash", FIRST)
def test_the_message_is_the_kernels_own_sentence(crash: str) -> None:
    death = died("6.1", crash)
    said = death.guest.console[death.guest.console.index("dmods guest: ready to die") :]
    lines = [line for line in re.findall(r"^\[ *\d+\.\d+\] (.*)$", said, re.M) if "cut here" not in line]
    assert death.record["message"] == lines[0].rstrip()
    assert death.record["message"].startswith(FIRST[crash])
    assert death.record["details"].startswith(lines[1].rstrip())
    if crash != "execute":  # no function is at the address
        assert death.record["where"].split("+")[0] in said


@pytest.mark.parametrize("crash", ["both"])
def test_of_two_cpus_that_die_at_once_the_one_that_panicked_is_told(crash: str) -> None:
    """Either may be the first: the other waits for it, and its lines stand between."""
    death = died("6.1", crash)
    record, console = death.record, death.guest.console
    bug, fault = "kernel BUG at ", "BUG: kernel NULL pointer dereference, address: 0000000000000028"
    mine, function = (fault, "guest_crash_both") if record["name"] == "init" else (bug, "guest_dies_too")
    assert record["message"].startswith(mine)
    assert record["where"].startswith(f"dmods_guest`{function}+")
    assert ("address" in record) == (mine == fault)
    assert "first_fault" not in [table["name"] for table in death.panicinfo["tables"]]
    other = bug if mine == fault else fault
    told = [note for note in death.panicinfo["notes"] if note.startswith("another CPU had an oops at the same time: ")]
    assert bool(told) == (f"] {other}" in console)
    assert all(other in note for note in told)
    # Without vmlinux, VMCOREINFO says where the log has the caller of a line.
    bare = answers.dmods("panicinfo", death.guest.vmcore)
    assert re.search(rf"^message: +{re.escape(record['message'])}$", bare.stdout, re.M)
    assert re.search(rf"^name: +{record['name']}$", bare.stdout, re.M)
    assert [note.replace("note: ", "") for note in bare.stderr.splitlines() if "another CPU" in note] == told


@pytest.mark.parametrize("crash", ["oom"])
def test_out_of_memory_names_who_has_it(crash: str) -> None:
    death = died("6.1", crash)
    rows = re.findall(r"\[ *(\d+)\] +\d+ +\d+ +\d+ +(\d+) +\d+ +(\d+) +-?\d+ (.+)$", death.guest.console, re.M)
    pid, resident, swapped, name = max(rows, key=lambda row: int(row[1]) + int(row[2]))
    assert name.strip() == "the hog"
    assert "invoked oom-killer" in death.record["message"]
    assert f"the largest task is the hog, pid {pid}: {resident} pages" in death.record["details"]
    assert f"{swapped} in swap" in death.record["details"] or swapped == "0"
