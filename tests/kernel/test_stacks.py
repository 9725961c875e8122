"""``findstack`` and ``stacks`` of kernels that died in every way.

They are compared with the guest's own words, the trace that the kernel printed, drgn's unwinder, and nm.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any

import pytest

from dmods.command import KERNEL
from drgnext.commands import findstack
from drgnext.kernel.dump.target import Kernel
from fixtures import answers, kernel
from fixtures.limits import HANG
from tests.kernel.crashed import (
    DEATHS,
    TRAPS,
    Death,
    ask,
    call_trace,
    died,
    frames_of,
    names,
    open_program,
    symbols,
)
from tools.bench import stacks as bench

#: The console's line right before the trace of the innermost trap.
BEFORE = {"sysrq": "Kernel panic - not syncing", "nmi": "Kernel panic - not syncing"}


@pytest.mark.parametrize(("release", "crash", "dump"), DEATHS)
def test_every_trap_is_a_frame_and_marked(release: str, crash: str, dump: str) -> None:
    death = died(release, crash, dump)
    trapped = [row for row in death.frames if row["pt_regs"]]
    assert len(trapped) == len(TRAPS[crash])
    for row, trap in zip(trapped, TRAPS[crash]):
        assert row["note"].startswith("<-- ")
        assert row["exact"] is True
        if trap is not None:
            assert int(row["pc"], 16) == (0 if trap.at == "jump" else death.at(trap.at))


@pytest.mark.parametrize(("release", "crash", "dump"), DEATHS)
def test_the_frames_are_those_that_the_kernel_printed(release: str, crash: str, dump: str) -> None:
    """All function+offset pairs from panic (or the trap) to the outermost agree, in their order."""
    death = died(release, crash, dump)
    rows = frames_of(death.findstack)
    ours = names(rows)
    theirs = call_trace(death.guest.console, BEFORE.get(crash, "Oops" if crash != "bug" else "invalid opcode"))
    if crash in BEFORE:
        # The offsets in panic and show_stack themselves are of another moment.
        start = next(n for n, place in enumerate(theirs) if place.startswith("panic+")) + 1
        ours = ours[next(n for n, place in enumerate(ours) if place.startswith("panic+")) + 1 :]
        theirs = theirs[start:]
    else:
        # An oops shows the trapped pc above its trace, as RIP.
        first = next(n for n, row in enumerate(rows) if row["pt_regs"])
        ours = ours[first + 1 :]
    inside = [row["pt_regs"] for row in rows][-len(ours) :]
    # Interrupted code is shown as RIP as well.
    ours = [place for place, trap in zip(ours, inside) if not trap]
    assert [_plain_name(place) for place in ours] == [_plain_name(place) for place in theirs]


def _plain_name(place: str) -> str:
    """Return the name without labels. Assembly has labels inside functions, and the kernel prints the nearest one."""
    labels = {"entry_SYSCALL_64": "system call", "asm_exc_nmi": "NMI", "end_repeat_nmi": "NMI"}
    labels.update({"secondary_startup_64": "start", "common_startup_64": "start"})
    place = re.sub(r"asm_call_\w*on_stack", "asm_call_on_stack", place)
    return next((name for label, name in labels.items() if place.startswith(label)), place)


@pytest.mark.parametrize(("release", "crash", "dump"), DEATHS)
def test_nothing_past_the_boundary_to_user_space(release: str, crash: str, dump: str) -> None:
    death = died(release, crash, dump)
    assert death.init["totals"]["end"] == "entered from user space"
    last = death.frames[-1]
    assert last["name"].startswith("entry_SYSCALL_64")
    assert int(last["pc"], 16) >> 63 == 1
    # write(2) in the guest's init: the address right after its syscall instruction. rcx holds it as well.
    printed = re.search(r"RIP: 0033:0x([0-9a-f]+)", death.guest.console)
    assert printed is not None or death.panicked != 1
    if printed is not None:
        assert int(death.init["totals"]["user_pc"], 16) == int(printed[1], 16)


@pytest.mark.parametrize(("release", "crash", "dump"), DEATHS)
def test_a_return_address_names_the_function_that_made_the_call(release: str, crash: str, dump: str) -> None:
    """nm is the oracle. Where the call never returns, the return address itself belongs to another function."""
    death = died(release, crash, dump)
    table = symbols(str(death.guest.vmlinux))
    slide = _slide(death)
    known = beyond = 0
    for number in range(len(death.stacks["tables"][0]["rows"])):
        for row in frames_of(death.stacks, number):
            function = row["name"].partition("+")[0]
            if "`" in function or row["note"].startswith("<-- "):
                continue
            pc = int(row["pc"], 16) - slide
            exact = any(row["pc"] == one["pc"] and one["exact"] for one in death.frames)
            assert function in table.at(pc if exact else pc - 1), row
            known += 1
            beyond += function not in table.at(pc)
    assert known
    print(f"{release} {crash}: {beyond} return addresses lie in the next function")


def _slide(death: Death) -> int:
    """Return the offset of KASLR, which the console shows at the panic, and vmcoreinfo in a dump by kexec."""
    found = re.search(r"Kernel Offset: 0x([0-9a-f]+) from", death.guest.console)
    if death.guest.dump == "kexec":
        with open(death.guest.vmcore, "rb") as file:
            found = re.search(r"KERNELOFFSET=([0-9a-f]+)", file.read(1 << 16).decode("latin-1"))
            assert found is not None
    return int(found[1], 16) if found else 0


@pytest.mark.parametrize("release", ["6.1", "6.12"])
def test_a_noreturn_call_is_its_callers(release: str) -> None:
    """The call of panic in oops_end is the last instruction of its cold part."""
    death = died(release, "null")
    table = symbols(str(death.guest.vmlinux))
    row = next(row for row in death.frames if row["name"].startswith("oops_end"))
    pc = int(row["pc"], 16) - _slide(death)
    function, _plus, offset = row["name"].partition("+")
    assert table.address(function) + int(offset, 16) == pc
    assert row["source"]["file"].endswith("arch/x86/kernel/dumpstack.c")


@pytest.mark.parametrize(("release", "crash", "dump"), DEATHS)
def test_all_tasks_have_the_frames_that_drgn_finds(release: str, crash: str, dump: str) -> None:
    """One unwinder uses ORC and the other DWARF. drgn's frames of user space are left out."""
    death = died(release, crash, dump)
    (summary,) = death.stacks["tables"]
    stacks = [row["stack"] for row in summary["rows"]]
    assert sum(row["count"] for row in summary["rows"]) == death.stacks["totals"]["tasks"]
    seen = 0
    for row, whole in zip(summary["rows"], stacks):
        # drgn starts at the registers in the dump. What ran after them is ours alone.
        behind = bool(whole) and whole[0]["found"] == "left behind"
        stack = whole[next(n for n, frame in enumerate(whole) if frame.get("pt_regs")) if behind else 0 :]
        pcs = [int(frame["pc"], 16) for frame in stack]
        pids = _pids(row["tasks"])
        assert len(pids) <= row["count"]  # all idle tasks have pid 0
        for pid in pids - {0}:
            theirs = death.plain[pid]
            assert theirs[: len(pcs)] == pcs, pid
            # From here drgn goes on with user space, as far as it can, and further.
            assert (len(theirs) > len(pcs)) == (stack[-1]["name"].startswith("entry_")), pid
            seen += 1
    assert seen >= 40
    assert len(stacks) < seen
    assert sorted((row["count"] for row in summary["rows"]), reverse=True) == [r["count"] for r in summary["rows"]]


def _pids(text: str) -> set[int]:
    found: set[int] = set()
    for first, last in re.findall(r"(?<=[ ,])(\d+)(?:-(\d+))?(?=,|$)", text):
        found.update(range(int(first), int(last or first) + 1))
    return found


WAYS = {
    "in_pause": "__x64_sys_pause",
    "in_sleep": "do_nanosleep",
    "in_poll": "do_sys_poll",
    "in_read": "vfs_read",
    "in_futex": "futex_wait",
}


@pytest.mark.parametrize("release", ["6.1", "6.12", "sid"])
def test_threads_that_wait_for_the_same_share_a_stack(release: str) -> None:
    """The guest's threads are named after the function in which they wait."""
    death = died(release, "sysrq")
    (summary,) = death.stacks["tables"]
    for name, function in WAYS.items():
        (at,) = (n for n, row in enumerate(summary["rows"]) if f"{name} " in row["tasks"])
        others = _pids(re.sub(rf"\b{name} [\d,-]+", "", summary["rows"][at]["tasks"]))
        assert summary["rows"][at]["count"] - len(others) == death.guest.truth[f"threads_{name}"]
        assert function in [row["name"].partition("+")[0] for row in summary["rows"][at]["stack"]]


@pytest.mark.parametrize("release", ["6.1", "6.12", "sid"])
def test_the_idle_tasks_of_all_cpus(release: str) -> None:
    """The CPUs that the panic stopped are among them."""
    summary = died(release, "sysrq").stacks["tables"][0]["rows"]
    tasks = ", ".join(row["tasks"] for row in summary)
    assert set(re.findall(r"swapper/\d", tasks)) == {"swapper/0", "swapper/1"}


@pytest.mark.thorough("crash(8) is slow")
def test_crash_shows_the_same_frames_and_some_more() -> None:
    """crash(8) scans the stack for return addresses. The kernel itself did not print those that only crash shows."""
    death = died("6.1", "jump")
    done = subprocess.run(
        ["crash", "-s", str(death.guest.vmlinux), str(death.guest.vmcore)],
        input=f"bt {death.record['thread'][2:]}\nquit\n",
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
        env={**os.environ, "TERM": "dumb", "HOME": str(death.guest.directory)},
    )
    theirs = re.findall(r"^ *#\d+ \[[0-9a-f]+\] (\w+) at", done.stdout, re.M)
    assert "guest_crash_jump" in theirs, done.stdout + done.stderr
    first = next(n for n, row in enumerate(death.frames) if row["pt_regs"])
    ours = [place.partition("+")[0] for place in names(death.frames)[first + 1 :]]
    theirs = [name.replace("_after_hwframe", "") for name in theirs[theirs.index("guest_crash_jump") :]]
    rest = iter(theirs)
    assert all(name in rest for name in ours), (ours, theirs)  # in their order
    printed = " ".join(call_trace(death.guest.console, "Oops"))
    assert not [name for name in set(theirs) - set(ours) if f"{name}+" in printed]


def test_stacks_by_caller_and_module() -> None:
    from drgnext.kernel.dump.target import Kernel
    from tests.kernel.crashed import ask, open_program

    death = died("6.1", "null")
    target = Kernel(open_program(death.guest))
    (summary,) = ask(target, "stacks", "-m", "dmods_guest")["tables"]
    assert [row["count"] for row in summary["rows"]] == [1]
    assert any(row["name"].startswith("dmods_guest`") for row in summary["rows"][0]["stack"])
    for stack in ask(target, "stacks", "-c", "kthread")["tables"][0]["rows"]:
        assert any(row["name"].startswith("kthread+") for row in stack["stack"])
    assert ask(target, "stacks", "-c", "no_such_function")["totals"] == {"stacks": 0, "tasks": 0}


def test_findstack_by_address_pid_and_name() -> None:
    from drgnext.kernel.dump.target import Kernel
    from tests.kernel.crashed import ask, open_program

    death = died("6.1", "sysrq")
    assert death.panicked == 1
    target = Kernel(open_program(death.guest))

    def found(*arguments: str) -> list[Any]:
        return [row["stack"] for row in ask(target, "findstack", *arguments)["tables"][0]["rows"]]

    assert found("1") == found() == found(death.record["thread"]) == found(death.record["thread"][2:])
    by_name = found("kthreadd")
    assert by_name == found("2")
    assert [row["name"].partition("+")[0] for row in by_name[0]][-2:] == ["kthreadd", "ret_from_fork"]


def test_a_stack_that_the_limit_cuts_says_so() -> None:
    from drgnext.kernel.dump.target import Kernel
    from tests.kernel.crashed import ask, open_program

    target = Kernel(open_program(died("6.1", "sysrq").guest))
    for command in ("findstack", "stacks"):
        (table,) = ask(target, command, "-n", "2")["tables"]
        assert {row["truncated"] for row in table["rows"] if len(row["stack"]) == 2} == {True}
        (table,) = ask(target, command)["tables"]
        assert {row["truncated"] for row in table["rows"]} == {False}
    args = findstack.COMMAND.parser().parse_args(["-n", "2"])
    (text, *_rest) = findstack.COMMAND.run(target, args).tables
    assert text.footer == ["... (the frame limit was reached: -n N shows more)"]


def test_the_bench_says_that_both_unwinders_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--small", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["tasks"] >= sum(died("6.1", "sysrq").guest.truth[f"threads_{name}"] for name in WAYS)
    assert said["unique"] < said["tasks"]
    assert said["stacks_per_second"] > said["drgn_stacks_per_second"]


def test_the_table_of_stacks_fits_on_a_screen_and_all_tasks_are_named() -> None:
    guest = kernel.guest("6.1", "null")
    target = Kernel(open_program(guest))
    shown = answers.text(target, "stacks", side=KERNEL)
    summary, *_rest = shown.split("\n\n")
    assert max(map(len, summary.splitlines())) < 130
    rows = ask(target, "stacks")["tables"][0]["rows"]
    titles = re.findall(r"^stack (\d+): (\d+) tasks?: (.+)$", shown, re.M)
    assert [(int(number), int(count), names) for number, count, names in titles] == [
        (row["number"], row["count"], row["tasks"]) for row in rows
    ]
    assert max(len(row["tasks"]) for row in rows) > 200
