"""Dumps that a crash kernel made of its guest's /proc/vmcore, and ways to die that only they need.

The witnesses are the guest itself, its console or log, drgn's own trace, and makedumpfile.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from drgnext.kernel.dump.cpu_notes import read_cpu_notes
from drgnext.kernel.dump.dumpfile import dump_file_notes
from drgnext.kernel.dump.target import Kernel
from fixtures import answers, kernel, whole
from tests.kernel.carried import without_types
from tests.kernel.crashed import (
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

#: (release, crash, who made the dump): ways to die with a trap in a function of the guest's module.
SELDOM = [
    *(("6.1", crash, dump) for dump in kernel.DUMPS for crash in ("idle", "copy", "wild", "wilduser", "wildnmi")),
    *(("6.12", crash, "kexec") for crash in ("wild", "wildnmi", "copy")),
]
OTHERWISE = pytest.mark.thorough("it needs guests that died otherwise")
#: Ways to die that the crash kernel of 6.1 dumps in every run. A guest with a crash kernel boots twice.
DUMPED_TWICE = ("idle", "copy", "wild", "overflow")
STACK_POINTERS = {"wild": 0x8000000000001000, "wilduser": 0x11000, "wildnmi": 0x7FFC12345678}
FUNCTIONS = {"idle": "guest_idle_function", "copy": "guest_fault"}
#: The functions that run after the trap, the innermost last. Some take part in every oops, and one in every panic.
LAST = ["crash_kexec", "__crash_kexec", "machine_kexec"]


def deaths(*cases: tuple[str, str, str]) -> list[Any]:
    """Return the parameters (release, crash, dump). Most guests with a crash kernel are left to DMODS_KERNELS=all."""
    seldom = pytest.mark.seldom("a crash kernel dumps other guests")
    return [
        pytest.param(*case, marks=[seldom] if case[2] == "kexec" and not _in_every_run(*case[:2]) else [])
        for case in cases
    ]


def _in_every_run(release: str, crash: str) -> bool:
    return release == "6.1" and crash in DUMPED_TWICE


def test_a_crash_kernel_leaves_a_whole_dump() -> None:
    guest = kernel.guest("6.1", "null", dump="kexec")
    whole.elf_core(guest.vmcore)
    assert b"CRASHTIME=" in guest.vmcore.read_bytes()[: 1 << 16]  # only crash_save_vmcoreinfo() writes it
    assert "Kdump: loaded" in guest.console


@pytest.mark.parametrize(
    ("release", "crash", "dump"),
    [
        *(("6.1", crash, "kexec") for crash in ("null", "jump", "softirq", "overflow")),
        *((release, crash, "kexec") for release in ("6.12", "5.10") for crash in ("jump", "softirq")),
    ],
)
def test_the_functions_that_died_are_above_the_trap(release: str, crash: str, dump: str) -> None:
    death = died(release, crash, dump)
    rows = frames_of(death.findstack)
    at = next(n for n, row in enumerate(rows) if row["pt_regs"])
    inner = [row["name"].partition("+")[0] for row in rows[:at]]
    assert [name for name in reversed(inner) if name in LAST] == LAST
    assert inner[-1].startswith("asm_exc_")
    assert rows[0]["found"] == "left behind"
    assert "those of the trap below" in rows[0]["note"]
    # The pt_regs lies where the kernel's entry code keeps it: right above the return address of its call.
    assert int(rows[at - 1]["sp"], 16) == int(rows[at]["pt_regs"], 16)


@pytest.mark.parametrize(("release", "crash", "dump"), deaths(*SELDOM))
def test_a_seldom_death(release: str, crash: str, dump: str) -> None:
    """The guest knows the address of the instruction. Its function and line are in the module's own tables."""
    death = died(release, crash, dump)
    record = death.record
    at, path = death.at(crash), str(death.guest.module.resolve())
    section, offset = in_module(path, f"guest_at_{crash}")
    function = FUNCTIONS.get(crash, f"guest_crash_{crash}")
    assert int(record["pc"], 16) == at
    assert record["where"] == f"dmods_guest`{function}+{offset - symbols(path).address(function):#x}"
    source, line = record["source"].rpartition("/")[2].split(":")
    assert source in ("dmods_guest.c", "dmods_x86.c")
    assert int(line) == addr2line(path, offset, section)[1]
    printed = re.search(rf"RIP: 0010:{function}\+0x[0-9a-f]+/0x[0-9a-f]+ \[dmods_guest\]", death.guest.console)
    assert printed is not None
    rows = frames_of(death.findstack)
    (trapped,) = (row for row in rows if row["pt_regs"] and int(row["pc"], 16) == at)
    assert trapped["pt_regs"] == record["pt_regs"]
    assert any(row["pt_regs"] == trapped["pt_regs"] for row in ask_trapframe(death))


def ask_trapframe(death: Death) -> list[dict[str, Any]]:
    if death.record["pid"] == 1:
        return list(death.trapframe["tables"][0]["rows"])
    target = Kernel(open_program(death.guest))
    return list(ask(target, "trapframe")["tables"][0]["rows"])


@pytest.mark.parametrize("dump", kernel.DUMPS)
@OTHERWISE
def test_the_idle_task_of_another_cpu(dump: str) -> None:
    record = died("6.1", "idle", dump).record
    assert record["pid"] == 0
    assert record["name"] == f"swapper/{record['cpu']}"


@pytest.mark.parametrize("dump", kernel.DUMPS)
@OTHERWISE
def test_a_fault_within_copy_from_user(dump: str) -> None:
    """Both traps are there: the one in the fault handler, and the one that called it."""
    traps = [row for row in frames_of(died("6.1", "copy", dump).init) if row["pt_regs"]]
    assert traps[0]["name"].startswith("dmods_guest`guest_fault+")
    assert "copy_user" in traps[1]["name"]


@pytest.mark.parametrize(
    ("release", "crash", "dump"), deaths(*(("6.1", crash, dump) for crash in STACK_POINTERS for dump in kernel.DUMPS))
)
@OTHERWISE
def test_a_wild_stack_pointer_loses_no_trap_and_makes_no_frame(release: str, crash: str, dump: str) -> None:
    death, sp = died(release, crash, dump), STACK_POINTERS[crash]
    rows = frames_of(death.init)
    at = next(n for n, row in enumerate(rows) if row["pt_regs"])
    assert int(rows[at]["sp"], 16) == sp
    assert int(death.record["rsp"], 16) == sp
    # A row says that frames are missing there. It is no frame.
    assert [row.get("gap") for row in rows[at + 1 :]] == [True]
    shown = death.plain[1]
    assert shown.index(death.at(crash)) == (0 if dump == "kexec" and crash != "wildnmi" else at)


@pytest.mark.parametrize(
    ("release", "crash", "dump"),
    deaths(*((release, "overflow", dump) for release in ("6.1", "6.12", "5.10") for dump in kernel.DUMPS)),
)
@OTHERWISE
def test_a_stack_overflow_is_folded(release: str, crash: str, dump: str) -> None:
    death = died(release, crash, dump)
    assert "stack guard page was hit" in death.record["message"]
    assert death.record["where"].startswith("dmods_guest`guest_overflow")
    found = re.fullmatch(r"dmods_guest`(guest_overflow\S*) x (\d+), (\d+) bytes each", death.record["recursion"])
    assert found is not None
    # drgn unwinds by other tables: it has the frames with that return address, and one more that trapped.
    rows = [row for row in frames_of(death.init) if "guest_overflow" in row["name"] and not row["pt_regs"]]
    (back,) = {int(row["pc"], 16) for row in rows}
    assert death.plain[1].count(back) == int(found[2]) == len(rows)
    sps = [int(row["sp"], 16) for row in rows]
    assert {high - low for low, high in zip(sps, sps[1:])} == {int(found[3])}
    text = answers.text(Kernel(open_program(death.guest)), "findstack", "1", side="kernel")
    assert len(re.findall("guest_overflow[^ ]*\\+", text)) == 2  # where it trapped, and once for all others
    assert f"x {found[2]}, {found[3]} bytes each" in text


@pytest.mark.parametrize(("release", "crash", "dump"), deaths(*(("6.1", "tail", dump) for dump in kernel.DUMPS)))
@OTHERWISE
def test_a_tail_call_to_nowhere_names_who_jumped(release: str, crash: str, dump: str) -> None:
    death = died(release, crash, dump)
    assert death.record["pc"] == "0x0"
    assert death.record["call_where"].startswith("dmods_guest`guest_crash_tail+")
    assert re.fullmatch(r"call 0x[0-9a-f]+ <dmods_guest`guest_tail>", death.record["call_instruction"])
    assert death.record["jumped_by"].startswith("dmods_guest`guest_tail,")
    # The guest knows where the jump is: within the function that the call names.
    target = int(re.findall("0x[0-9a-f]+", death.record["call_instruction"])[0], 16)
    assert 0 <= death.at("tail") - target < 0x40
    row = next(row for row in frames_of(death.init) if "guest_crash_tail" in row["name"])
    assert "jumped to 0x0 by dmods_guest`guest_tail" in row["note"]
    # An indirect call names nobody: the function that called is the one that jumped.
    assert "jumped_by" not in died("6.1", "jump").record


@pytest.mark.parametrize(("release", "crash", "dump"), deaths(*(("6.1", "smash", dump) for dump in kernel.DUMPS)))
@OTHERWISE
def test_a_smashed_return_says_that_a_caller_is_lost(release: str, crash: str, dump: str) -> None:
    death = died(release, crash, dump)
    rows = frames_of(death.init)
    at = next(n for n, row in enumerate(rows) if row["pt_regs"])
    assert rows[at]["pc"] == "0x0"
    assert "its return address was overwritten" in rows[at + 1]["note"]
    assert "guess" in rows[at + 1]["note"]
    assert "jumped_by" not in death.record
    # The kernel lists what it found by scanning as well, with question marks. Ours are among them, in order.
    console = death.guest.console
    trace = re.findall(r"\] +(?:\? )?(\w\S*\+0x[0-9a-f]+)/0x", console[console.index("Call Trace:") :])
    rest = iter(re.sub("_after_hwframe.*", "", place) for place in trace)
    ours = [re.sub(r"(entry_SYSCALL_64)\+.*", r"\1", name) for name in names(rows[at + 1 :])]
    assert all(name in rest for name in ours), (ours, trace)


@OTHERWISE
def test_a_smashed_return_names_who_returned_where_one_call_fits() -> None:
    """The module's functions: one calls guest_smash() alone, and the other calls guest_harmless() as well."""
    death = died("6.1", "smashone")
    rows = frames_of(death.init)
    at = next(n for n, row in enumerate(rows) if row["pt_regs"])
    called = [re.split(r"[.+]", name.partition("`")[2] or name)[0] for name in names(rows[at + 1 :])[:3]]
    assert called == ["guest_only_smash", "guest_crash_smashone", "guest_write"]
    assert rows[at + 1]["note"].startswith("<-- dmods_guest`guest_smash, or a function that it jumped to, returned to")
    # The instruction before the return address calls the function that smashed it.
    assert 0 <= death.at("smash") - _call_target(death, int(rows[at + 1]["pc"], 16)) < 16
    death = died("6.1", "smashtwo")
    rows = frames_of(death.init)
    at = next(n for n, row in enumerate(rows) if row["pt_regs"])
    assert "guest_crash_smashtwo" in rows[at + 1]["name"]
    assert re.search(r"a call in \S*guest_above_smash\S* \(.*guest_harmless.*; .*guest_smash[,.]", rows[at + 1]["note"])
    assert "__stack_chk_fail" not in rows[at + 1]["note"]


@OTHERWISE
@pytest.mark.parametrize("release", ["6.1", "6.12", "5.10", "sid"])
def test_a_stack_overrun_keeps_its_callers(release: str) -> None:
    """The stack protector found it. The kernel's own trace has no certain caller then."""
    death = died(release, "canary")
    rows = frames_of(death.init)
    called = [re.split(r"[.+]", name.partition("`")[2] or name)[0] for name in names(rows)]
    at = called.index("guest_overrun")
    assert called[at + 1 : at + 4] == ["guest_above_overrun", "guest_crash_canary", "guest_write"]
    assert rows[at + 1]["note"].startswith("<-- 0x4242424242424242 is on the stack in place of the return address")
    assert rows[-1]["name"].startswith("entry_SYSCALL_64")
    assert death.findstack["totals"]["end"] == "entered from user space"
    printed = death.guest.console[death.guest.console.index("Call Trace:") :]
    assert not re.search(r"\]  guest_above_overrun", printed)


@OTHERWISE
def test_a_trap_after_the_return_address_was_overwritten() -> None:
    death = died("6.1", "smashtext")
    rows = frames_of(death.init)
    at = next(n for n, row in enumerate(rows) if row["pt_regs"])
    assert int(rows[at]["pc"], 16) == death.at("smashtext")
    called = [re.split(r"[.+]", name.partition("`")[2] or name)[0] for name in names(rows[at:])[:4]]
    assert called == ["guest_text", "guest_only_text", "guest_crash_smashtext", "guest_write"]
    assert "0x4141414141414141" in rows[at + 1]["note"]


def _call_target(death: Death, back: int) -> int:
    """Return where the call goes that ends at ``back``: a displacement of 4 bytes, in the module's memory."""
    prog = open_program(death.guest)
    return back + int.from_bytes(prog.read(back - 4, 4), "little", signed=True)


@pytest.mark.parametrize("release", ["6.1", "6.12", "sid"])
@OTHERWISE
def test_an_nmi_as_a_system_call_enters(release: str) -> None:
    """A real one: QEMU stopped the processor there. The stack pointer is still the program's."""
    death = died(release, "sysnmi")
    rows = frames_of(death.init)
    at = next(n for n, row in enumerate(rows) if row["pt_regs"])
    assert int(rows[at]["pc"], 16) == death.at("sysnmi")
    assert rows[at]["name"].startswith("entry_SYSCALL_64+")
    assert "interrupted by an NMI" in rows[at]["note"]
    assert not [row for row in rows[at + 1 :] if not row.get("gap")]
    # The NMI goes to all CPUs. Another one may print its registers first.
    printed = re.search(r"RIP: 0010:entry_SYSCALL_64.*?RSP: 0018:([0-9a-f]+)", death.guest.console, re.DOTALL)
    assert printed is not None
    assert int(rows[at]["sp"], 16) == int(printed[1], 16) < 1 << 47
    assert int(death.record["rsp"], 16) == int(printed[1], 16)


@pytest.mark.parametrize("dump", kernel.DUMPS)
@OTHERWISE
def test_int3_is_the_instruction_that_trapped(dump: str) -> None:
    death = died("6.1", "int3", dump)
    assert int(death.record["pc"], 16) == death.at("int3")
    assert death.record["instruction"] == "int3"
    assert int(death.record["rip"], 16) == death.at("int3") + 1  # as the console has it
    printed = re.search(r"RIP: 0010:guest_crash_int3\+0x([0-9a-f]+)", death.guest.console)
    assert printed is not None
    assert death.record["where"] == f"dmods_guest`guest_crash_int3+{int(printed[1], 16) - 1:#x}"
    (row,) = (row for row in death.traps if row["trap"] == "int3")
    assert (int(row["pc"], 16), row["where"]) == (death.at("int3"), death.record["where"])


@pytest.mark.parametrize("dump", kernel.DUMPS)
@OTHERWISE
def test_hung_tasks_the_message_is_the_first(dump: str) -> None:
    death = died("6.1", "hung", dump)
    first = re.search(r"INFO: task \S+ blocked for more than \d+ seconds\.", death.guest.console)
    assert first is not None
    assert death.record["message"] == first[0]
    assert death.record["panic"] == "hung_task: blocked tasks"
    assert death.record["called_by"].startswith("watchdog")
    assert "logged_pc" not in death.record  # the console has registers of user space only


@pytest.mark.parametrize("dump", kernel.DUMPS)
@OTHERWISE
def test_the_first_fault_is_shown_with_its_task_and_frames(dump: str) -> None:
    death = died("6.1", "twice", dump)
    assert death.record["message"] == "sysrq triggered crash"
    tables = answers.by_name(death.panicinfo)
    (first,) = tables["first_fault"]
    who = re.search(r"CPU: (\d+) PID: (\d+) Comm: (\S+)", death.guest.console)
    assert who is not None
    assert (first["cpu"], first["pid"], first["name"]) == (int(who[1]), int(who[2]), "first_fault")
    section, offset = in_module(str(death.guest.module.resolve()), "guest_at_twice")
    line = addr2line(str(death.guest.module.resolve()), offset, section)[1]
    assert first["where"].startswith("dmods_guest`guest_first_fault+")
    assert first["source"].endswith(f"dmods_guest.c:{line}")
    assert [row["where"] for row in tables["first_fault_frames"]] == call_trace(death.guest.console, "Oops")
    assert all(row["source"] for row in tables["first_fault_frames"])


def test_makedumpfiles_form_says_the_same() -> None:
    guest = died("6.1", "null", "kexec").guest
    small = Kernel(open_program(guest, dump=guest.dumped("-z", "-d", "31")))
    plain = Kernel(open_program(guest))
    for name in ("panicinfo", "findstack"):
        assert ask(small, name)["tables"] == ask(plain, name)["tables"]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dump whose kernel carries no types, with nothing beside it."""
    return without_types(kernel.guest("6.1", "null", dump="kexec").vmcore, tmp_path_factory.mktemp("bare"))


def test_without_types_the_log_is_shown(bare: Path) -> None:
    guest = kernel.guest("6.1", "null", dump="kexec")
    done = answers.dmods("panicinfo", bare)
    assert done.returncode == 1
    assert f"linux-image-{guest.release}-dbg" in done.stderr
    assert re.search(r"^message: +BUG: kernel NULL pointer dereference, address: 0000000000000028$", done.stdout, re.M)
    assert re.search(rf"^kernel: +{re.escape(guest.release)}$", done.stdout, re.M)
    frames = [name.replace("`", " ").split()[-1] for name in call_trace(guest.console, "Oops")]
    after = done.stdout[done.stdout.index("the frames that the kernel printed") :].splitlines()[1:]
    assert [line.rpartition("`")[2] for line in after[: len(frames)]] == frames


def test_without_types_the_whole_log_is_the_consoles(bare: Path) -> None:
    guest = kernel.guest("6.1", "null", dump="kexec")
    done = answers.dmods("panicinfo", bare, "-v", "--json")
    (table,) = (one for one in answers._object(done.stdout)["tables"] if one["name"] == "log")
    printed = _printed_by_the_first_kernel(guest.console)
    logged = [row["text"].rstrip() for row in table["rows"]]
    missing = [line for line in printed if line.rstrip() not in logged]
    assert len(printed) > 100
    assert not missing


def _printed_by_the_first_kernel(console: str) -> list[str]:
    """Return the lines of the log that a console has.

    The crash kernel prints what it finds alarming behind them. Its time begins at 0 again, before that of the oops.
    """
    lines = [(float(time), line) for time, line in re.findall(r"^\[ *(\d+\.\d+)\] (.*)$", console, re.M)]
    oops = next(place for place, (_time, line) in enumerate(lines) if line.startswith("BUG: "))
    return [line for place, (time, line) in enumerate(lines) if place < oops or time >= lines[oops][0]]


def test_symbols_and_architecture_go_to_drgn() -> None:
    guest = kernel.guest("6.1", "null", dump="kexec")
    files = ("-s", guest.vmlinux, "--symbols", guest.module, "--architecture=x86_64")
    done = answers.dmods("panicinfo", guest.vmcore, *files)
    assert done.returncode == 0, done.stderr
    assert "dmods_guest`guest_crash_null+" in done.stdout


def test_a_flattened_dump_has_the_same_notes_and_registers() -> None:
    guest = kernel.guest("6.1", "null", dump="kexec")
    plain, flat = (guest.dumped("-c", "-d", "31", *more) for more in ((), ("-F",)))
    assert flat.read_bytes()[:12] == b"makedumpfile"
    registers = read_cpu_notes(str(plain))
    assert registers.by_kernel
    assert len(registers.cpus) == 2
    assert read_cpu_notes(str(flat)) == registers
    assert dump_file_notes(str(flat)) == dump_file_notes(str(plain)) != []


@pytest.mark.thorough("it searches two dumps for leaks")
@pytest.mark.parametrize("words", [("panicinfo",), ("findleaks",), ("kmastat",), ("slabcheck",), ("findstack", "1")])
def test_a_flattened_dump_has_the_same_answers(words: tuple[str, ...]) -> None:
    guest = kernel.guest("6.1", "null", dump="kexec")
    plain, flat = (
        ask(Kernel(open_program(guest, dump=guest.dumped("-c", "-d", "31", *more))), *words) for more in ((), ("-F",))
    )
    slower = "drgn reads the dump for dmods, which is slower: it is flattened (makedumpfile -F)"
    flat["notes"] = [note for note in flat["notes"] if note != slower]
    assert flat | {"target": ""} == plain | {"target": ""}


@pytest.mark.thorough("it starts drgn; tests/corefile/test_kdumps.py has such headers for the quick run")
def test_a_dump_that_does_not_name_its_kernel(tmp_path: Path) -> None:
    """QEMU's kdump-zlib has only the machine of utsname."""
    guest = kernel.guest("6.1", "null", dump="kexec")
    data = bytearray(guest.dumped("-c", "-d", "31").read_bytes())
    data[12 : 12 + 4 * 65] = bytes(4 * 65)
    copy = tmp_path / "vmcore"
    copy.write_bytes(data)
    done = answers.dmods("panicinfo", copy, "-s", guest.vmlinux, "-s", guest.module)
    assert done.returncode == 0, done.stderr
    assert "dmods_guest`guest_crash_null+" in done.stdout


def test_a_flattened_dump_that_is_cut(tmp_path: Path) -> None:
    data = kernel.guest("6.1", "null", dump="kexec").dumped("-c", "-d", "31", "-F").read_bytes()
    cut = tmp_path / "vmcore"
    for kept in (5000, len(data) // 2, len(data) - 16):
        cut.write_bytes(data[:kept])
        done = answers.dmods("panicinfo", cut)
        assert done.returncode == 1
        assert "is a flattened dump that is cut" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 2
