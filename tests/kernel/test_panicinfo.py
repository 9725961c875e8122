"""``panicinfo`` of kernels that died in every way, compared with what the guest knew and said of itself."""

from __future__ import annotations

import re

import pytest

from dmods.corefile.kernel_dumps import find_vmcoreinfo
from drgnext.kernel.dump.target import Kernel
from fixtures import kernel
from tests.drgn.conftest import Drgn, drgn, place
from tests.kernel.crashed import (
    DEATHS,
    Death,
    addr2line,
    ask,
    call_trace,
    died,
    frames_of,
    in_module,
    names,
    open_program,
    symbols,
)

__all__ = ("drgn", "place")  # fixtures

TRAPPED = [death for death in DEATHS if death[1] != "sysrq"]

MESSAGES = {
    "sysrq": "sysrq triggered crash",
    "null": "BUG: kernel NULL pointer dereference, address: 0000000000000028",
    "softirq": "BUG: kernel NULL pointer dereference, address: 0000000000000028",
    "hardirq": "BUG: kernel NULL pointer dereference, address: 0000000000000028",
    "jump": "BUG: kernel NULL pointer dereference, address: 0000000000000000",
    "bug": "kernel BUG at ",
    "nmi": "Uhhuh. NMI received for unknown reason ",
}


@pytest.mark.parametrize(("release", "crash", "dump"), DEATHS)
def test_the_message_is_the_first_cause(release: str, crash: str, dump: str) -> None:
    death = died(release, crash, dump)
    record = death.record
    assert record["message"].startswith(MESSAGES[crash])
    assert any(line.endswith(record["message"]) for line in death.guest.console.splitlines()) or crash == "sysrq"
    told = re.search(r"Kernel panic - not syncing: (.*)", death.guest.console)
    if told is not None:
        assert record.get("panic", record["message"]) == told[1].strip()
    else:  # an oops starts the crash kernel before it calls panic()
        assert dump == "kexec"
        assert "panic" not in record
    printed = re.search(r"CPU: (\d+) (?:UID: 0 )?PID: (\d+) Comm: (\S+)", _last_words(death))
    assert printed is not None
    assert (record["cpu"], record["pid"], record["name"]) == (int(printed[1]), int(printed[2]), printed[3])


@pytest.mark.parametrize(("release", "crash", "dump"), TRAPPED)
def test_the_pc_is_that_of_the_guests_own_instruction(release: str, crash: str, dump: str) -> None:
    death = died(release, crash, dump)
    record = death.record
    if death.panicked != 1:  # another CPU took the NMI first
        assert record["where"] == _printed_pc(death)
        return
    at = death.at(crash)
    path = str(death.guest.module.resolve())
    section, offset = in_module(path, f"guest_at_{crash}")
    function = HANDLERS.get(crash, f"guest_crash_{crash}")
    line = addr2line(path, offset, section)[1]
    place = f"dmods_guest`{function}+{offset - symbols(path).address(function):#x}"
    if crash == "jump":
        assert (record["pc"], int(record["call"], 16), record["call_where"]) == ("0x0", at, place)
        assert record["call_source"] == f"{path.rpartition('/')[0]}/dmods_guest.c:{line}"
        assert record["call_instruction"].startswith("call")
        assert record.get("instruction") is None
    else:
        assert (int(record["pc"], 16), record["where"]) == (at, place)
        assert record["source"] == f"{path.rpartition('/')[0]}/dmods_guest.c:{line}"
        expected = {"bug": "ud2", "nmi": f"jmp {at:#x}"}.get(crash, "movl ")
        assert record["instruction"].startswith(expected)
        assert record["where"] == _printed_pc(death)


def _last_words(death: Death) -> str:
    """Return what the console says of the crash. On a slow host the kernel may have told of a stall before it."""
    console = death.guest.console
    return console[max(0, console.find(death.record["message"])) :]


def _printed_pc(death: Death) -> str:
    """Return the pc as the console names it, the module first."""
    found = re.search(r"RIP: 0010:(\w+\+0x[0-9a-f]+)/0x[0-9a-f]+(?: \[(\w+)\])?", _last_words(death))
    assert found is not None
    return f"{found[2]}`{found[1]}" if found[2] else found[1]


HANDLERS = {"softirq": "guest_timer_function", "hardirq": "guest_irq_function"}


@pytest.mark.parametrize(("release", "crash", "dump"), TRAPPED)
def test_the_registers_are_those_the_kernel_printed(release: str, crash: str, dump: str) -> None:
    death = died(release, crash, dump)
    console = _last_words(death)
    # The first block that an oops (or a panic in an NMI) prints of the interrupted code in the kernel.
    block = console[console.index("RIP: 0010:") :][:2000]
    printed: dict[str, str] = {}
    for name, value in re.findall(r"\b(R[A-Z0-9]{2}|EFLAGS): (?:0018:)?([0-9a-f]{8,16})\b", block):
        printed.setdefault(name, value)
    assert len(printed) >= 17
    for name, value in printed.items():
        # The kernel prints R8 and R9 as R08 and R09.
        register = re.sub(r"^r0", "r", name.lower())
        assert int(death.record[register], 16) == int(value, 16), register
    assert death.record["rip"] == death.record["pc"]


@pytest.mark.parametrize(
    ("release", "crash", "dump"), [d for d in DEATHS if d[1] in ("null", "softirq", "hardirq", "jump")]
)
def test_the_faulting_address(release: str, crash: str, dump: str) -> None:
    death = died(release, crash, dump)
    assert int(death.record["address"], 16) == (0 if crash == "jump" else death.guest.truth["fault_address"])


@pytest.mark.parametrize(("release", "crash", "dump"), [d for d in DEATHS if d[1] == "sysrq"])
def test_a_plain_call_of_panic_names_its_caller_and_invents_no_trap(release: str, crash: str, dump: str) -> None:
    record = died(release, crash, dump).record
    assert record["called_by"].startswith("sysrq_handle_crash+")
    assert not {"pc", "trap", "rip", "address", "pt_regs"} & record.keys()


@pytest.mark.parametrize(("release", "crash", "dump"), DEATHS)
def test_taint_and_modules(release: str, crash: str, dump: str) -> None:
    record = died(release, crash, dump).record
    oops = crash not in ("sysrq", "nmi") and dump == "qemu"  # the crash kernel starts before an oops taints this one
    assert record["tainted"].split()[0].replace("D", "") == "OE"
    assert ("D" in record["tainted"].split()[0]) == oops
    assert "dmods_guest (OE)" in record["modules"]
    assert record["kernel"].startswith(died(release, crash, dump).guest.release)


@pytest.mark.quick("trapframe")
@pytest.mark.parametrize("name", ["panicinfo", "findstack", "trapframe"])
def test_a_compressed_and_filtered_dump_says_the_same(name: str) -> None:
    """makedumpfile -d 31 keeps the kernel's own memory: stacks, tables and the log."""
    guest = died("6.1", "null").guest
    whole = ask(Kernel(open_program(guest)), name)["tables"]
    small = ask(Kernel(open_program(guest, dump=guest.kdump)), name)["tables"]
    for table in (*whole, *small):
        for row in table["rows"]:
            row.pop("lie", None)  # drgn's read past the boundary to user space is not in both dumps
    assert small == whole


@pytest.mark.quick("panicinfo", "stacks")
@pytest.mark.parametrize("name", ["panicinfo", "findstack", "trapframe", "stacks"])
def test_as_typed(drgn: Drgn, name: str) -> None:
    """The literal command line prints text. Only results are on stdout."""
    guest = died("6.1", "null").guest
    symbols = [word for path in (guest.vmlinux, *guest.modules) for word in ("-s", path)]
    done = drgn("-c", guest.vmcore, *symbols, name)
    assert done.returncode == 0, done.stderr
    assert "dmods_guest`guest_crash_null+0x" in done.stdout
    first = {
        "panicinfo": "cpu:",
        "findstack": "stack pointer for thread",
        "trapframe": "trap frames of thread",
        "stacks": "STACK COUNT TASKS",
    }
    assert done.stdout.startswith(first[name])


@pytest.mark.thorough("it needs a guest of its own")
def test_a_kernel_with_four_levels_of_page_tables() -> None:
    """The addresses of its memory begin with ffff, not ff, and its tables have one level less."""
    guest = kernel.guest("6.1", "null", levels=4)
    target = Kernel(open_program(guest))
    (record,) = ask(target, "panicinfo")["tables"][0]["rows"]
    assert int(record["pc"], 16) == guest.truth["at_null"]
    assert int(record["thread"], 16) >> 48 == 0xFFFF
    rows = frames_of(ask(target, "findstack"))
    oops = next(n for n, row in enumerate(rows) if row["pt_regs"])
    # The last one has several names.
    assert names(rows[oops + 1 : -1]) == call_trace(guest.console, "Call Trace:")[:-1]
    # Without the note, the text is found and proven there, too.
    found = find_vmcoreinfo(str(guest.vmcore))
    assert found is not None
    assert b"NUMBER(pgtable_l5_enabled)=0" in found
