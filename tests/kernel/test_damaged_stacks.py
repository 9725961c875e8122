"""Stacks without unwind tables, and stacks, lists and logs that were overwritten: notes, and the rest of the answer."""

from __future__ import annotations

import random
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import pytest
from drgn.helpers.linux.module import find_module

from dmods.errors import UsageError
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.stacks import threads
from drgnext.kernel.stacks.frames import Stack
from drgnext.kernel.stacks.tasks import Task
from drgnext.kernel.stacks.threads import Threads
from fixtures import kernel
from fixtures.limits import HANG_CPU
from tests.kernel.crashed import DEATHS, TRAPS, ask, call_trace, frames_of, open_program

PAGE = 4096
_ANOTHER = pytest.mark.thorough("another death is tested")
WITHOUT_TABLES = [
    ("6.1", "null"),
    ("6.1", "softirq"),
    ("6.1", "hardirq"),
    pytest.param("6.1", "jump", marks=_ANOTHER),
    ("6.12", "bug"),
]


class Dump:
    """A fresh program of a guest, so that each test can do its own damage."""

    def __init__(
        self, release: str = "6.1", crash: str = "null", by: str = "qemu", modules: Optional[Sequence[Path]] = None
    ) -> None:
        """Open the dump with the guest's modules, or with other files of them."""
        self.guest = kernel.guest(release, crash, dump=by)
        self.prog = open_program(self.guest, modules is None)
        if modules is not None:
            self.prog.load_debug_info(modules)

    def put(self, address: int, data: bytes) -> None:
        """Write over kernel memory, as the program sees it."""
        self.prog.add_memory_segment(
            address, len(data), lambda at, size, _offset, _physical: data[at - address : at - address + size]
        )

    def lose(self, address: int, size: int) -> None:
        """Remove memory from the dump."""
        import drgn

        def missing(at: int, _size: int, _offset: int, _physical: bool) -> bytes:
            raise drgn.FaultError("not in the dump", at)

        self.prog.add_memory_segment(address, size, missing)

    @property
    def kernel(self) -> Kernel:
        return Kernel(self.prog)

    def init(self) -> tuple[Threads, Task, Stack]:
        known = threads.kernel_threads(self.kernel)
        (task,) = known.tasks.find("1")
        return known, task, known.stack(task)


@pytest.fixture
def dump() -> Dump:
    return Dump()


def without_tables(known: Threads, task: Task) -> Stack:
    known.code.format = None
    known.code._rules.clear()
    return known.stack(task)


@pytest.mark.parametrize(("release", "crash"), WITHOUT_TABLES)
def test_without_unwind_tables_every_trap_is_found(release: str, crash: str) -> None:
    """Only the CPU's registers and the words of the stacks are used. pt_regs are found and marked as such."""
    dump = Dump(release, crash)
    known, task, whole = dump.init()
    bare = without_tables(known, task)
    trapped = [frame for frame in bare.frames if frame.trap is not None]
    assert [(frame.pc, frame.found) for frame in trapped] == [
        (frame.pc, "scan") for frame in whole.frames if frame.trap is not None
    ]
    for frame, trap in zip(trapped, TRAPS[crash]):
        if trap is not None:
            assert frame.pc == (0 if trap.at == "jump" else dump.guest.truth[f"at_{trap.at}"])
    assert bare.end == "user"
    assert bare.user == whole.user
    # Only frames that the whole walk knows may appear.
    assert {frame.pc for frame in bare.frames} <= {frame.pc for frame in whole.frames}


def test_a_walk_that_stops_short_goes_on_from_the_next_pt_regs(dump: Dump) -> None:
    known, _task, whole = dump.init()
    at = next(n for n, frame in enumerate(whole.frames) if frame.trap is not None)
    # The return address of panic's caller is overwritten. It lies in the middle of the way to the trap.
    hole = whole.frames[2]
    assert hole.pc == known.memory.word(hole.sp - 8)
    dump.put(hole.sp - 8, struct.pack("<Q", 0x4141414141414141))
    _known, _task, found = dump.init()
    assert [frame.pc for frame in found.frames] == [
        *(frame.pc for frame in whole.frames[:2]),
        *(frame.pc for frame in whole.frames[at:]),
    ]
    assert found.frames[2].found == "scan"
    assert found.user == whole.user


def with_a_gap(least: int) -> tuple[Dump, int]:
    """Return a dump, and the stack pointer of a frame with at least ``least`` bytes that were never written.

    Most often it is the frame of do_syscall_64(), up to 1 KB (add_random_kstack_offset).
    """
    for release, crash, by in DEATHS:
        dump = Dump(release, crash, by)
        _known, _task, whole = dump.init()
        trapped = any(frame.trap is not None for frame in whole.frames)
        for low, high in zip(whole.frames, whole.frames[1:]):
            if trapped and least < high.sp - low.sp < PAGE:  # a greater distance is another stack
                return dump, low.sp
    raise AssertionError(f"no frame of any dump has {least} bytes")


@pytest.mark.thorough("the frame that it needs has a random size: where one guest has it too small, others are made")
def test_registers_in_a_part_of_a_frame_that_nobody_wrote_are_left_over() -> None:
    """They are of an earlier interrupt."""
    dump, gap = with_a_gap(168 + 2 * 64)
    known, task, whole = dump.init()
    size = known.machine.size
    trap = next(frame.trap for frame in whole.frames if frame.trap is not None)
    place = gap + 64
    words = list(struct.unpack(f"<{size // 8}Q", known.memory.read(trap.address, size)))
    words[19] = place + size + 64  # rsp
    entry = known.memory.read(trap.address - 16, 16)
    before = ask(dump.kernel, "trapframe")["tables"][0]["rows"]
    dump.put(place - 16, entry + struct.pack(f"<{len(words)}Q", *words))
    known, task, damaged = dump.init()
    assert [frame.pc for frame in damaged.frames] == [frame.pc for frame in whole.frames]
    used, left = known.traps_by_scan(task, damaged)
    assert place not in [one.address for one in used]
    assert place in [one.address for one in left]
    assert ask(dump.kernel, "trapframe")["tables"][0]["rows"] == before
    everything = ask(dump.kernel, "trapframe", "-a")["tables"][0]["rows"]
    assert [row["found"] for row in everything if int(row["pt_regs"], 16) == place] == ["scan: left over"]


def test_a_return_address_that_follows_no_call_is_marked(dump: Dump) -> None:
    known, _task, whole = dump.init()
    frame = whole.frames[2]
    inside = next(pc for pc in range(frame.pc, frame.pc + 64) if not known.code.after_call(pc) and pc != frame.pc)
    dump.put(frame.sp - 8, struct.pack("<Q", inside))
    rows = frames_of(ask(dump.kernel, "findstack"))
    assert int(rows[2]["pc"], 16) == inside
    assert "no call ends at this return address" in rows[2]["note"]
    assert not any("guess" in row["note"] for row in rows[:2])


def test_saved_registers_that_are_none_are_not_shown(dump: Dump) -> None:
    _known, _task, whole = dump.init()
    at = next(n for n, frame in enumerate(whole.frames) if frame.trap is not None)
    trap = whole.frames[at].trap
    assert trap is not None
    dump.put(trap.address, b"\x41" * 168)
    found = dump.init()[2]
    assert [frame.pc for frame in found.frames] == [frame.pc for frame in whole.frames[:at]]
    assert found.user == whole.user  # the next registers that are right


def words_of(seed: int, size: int, start: int) -> bytes:
    """Return random words, or words that look as if they belonged on the stack."""
    random.seed(seed)
    kinds: list[Any] = [
        lambda: random.getrandbits(64),
        lambda: start + random.randrange(0, size, 8),
        lambda: 0xFFFFFFFF81000000 + random.getrandbits(24),
        lambda: random.choice([0, 0x10, 0x33, 0x18, 0x2B, 0x246, 2**64 - 1]),
    ]
    return struct.pack(f"<{size // 8}Q", *(random.choice(kinds)() for _ in range(size // 8)))


@pytest.mark.quick("0", "2")
@pytest.mark.parametrize("seed", range(6))
def test_garbage_on_the_stack_costs_that_stack_alone(dump: Dump, seed: int) -> None:
    known, task, whole = dump.init()
    kthreadd = known.stack(known.tasks.find("2")[0])
    dump.put(task.stack, words_of(seed, known.stack_size, task.stack))
    started = time.process_time()
    known, task, found = dump.init()
    assert found.frames[0].pc == whole.frames[0].pc  # the CPU's own registers
    assert len(found.frames) <= 256
    assert [frame.pc for frame in known.stack(known.tasks.find("2")[0]).frames] == [f.pc for f in kthreadd.frames]
    for name in ("panicinfo", "findstack", "trapframe", "stacks"):
        assert ask(dump.kernel, name)["tables"]
    assert time.process_time() - started < HANG_CPU


def test_a_stack_that_leads_to_itself_ends(dump: Dump) -> None:
    _known, _task, whole = dump.init()
    # Each frame's return address leads to the frame itself.
    for frame, outer in zip(whole.frames[1:4], whole.frames[2:5]):
        dump.put(outer.sp - 8, struct.pack("<Q", frame.pc))
    found = dump.init()[2]
    assert len({(frame.pc, frame.sp) for frame in found.frames}) == len(found.frames) <= 256


def test_a_stack_that_is_not_in_the_dump(dump: Dump) -> None:
    known, task, whole = dump.init()
    dump.lose(task.stack, known.stack_size)
    _known, _task, found = dump.init()
    assert [frame.pc for frame in found.frames] == [whole.frames[0].pc]
    answer = ask(dump.kernel, "findstack")
    assert answer["totals"]["end"] == "what the unwind tables ask for is not in the dump"
    record = ask(dump.kernel, "panicinfo")["tables"][0]["rows"][0]
    assert record["message"].startswith("BUG: kernel NULL pointer dereference")
    # The log still says where the panic was.
    assert record["logged_pc"].startswith("guest_crash_null+")


def test_half_a_stack_that_is_not_in_the_dump(dump: Dump) -> None:
    """The page of the trap is in the dump, those of the panic are not."""
    _known, task, whole = dump.init()
    trap = next(frame.trap for frame in whole.frames if frame.trap is not None)
    dump.lose(task.stack, (trap.address & ~0xFFF) - task.stack)
    found = dump.init()[2]
    if whole.frames[0].sp & ~0xFFF == trap.address & ~0xFFF:
        assert [frame.pc for frame in found.frames] == [frame.pc for frame in whole.frames]
    else:
        assert trap.pc in [frame.pc for frame in found.frames]
    assert found.user == whole.user


def test_a_task_list_that_leads_back(dump: Dump) -> None:
    known, _task, _stack = dump.init()
    every = list(known.tasks.all())
    offset = known.tasks._layout.tasks
    middle = every[len(every) // 2].address
    leader = next(t.address for t in every if t.pid == t.tgid and t.address >= middle and t.pid > 2)
    dump.put(leader + offset, struct.pack("<Q", leader + offset))
    answer = ask(dump.kernel, "stacks")
    assert 0 < answer["totals"]["tasks"] < len(every)
    assert any("list of tasks" in note and "may be missing" in note for note in answer["notes"])


def test_a_task_list_that_leads_nowhere(dump: Dump) -> None:
    known, _task, _stack = dump.init()
    dump.put(known.tasks.find("2")[0].address + known.tasks._layout.tasks, struct.pack("<Q", 0xFFFF_8880_DEAD_0000))
    answer = ask(dump.kernel, "stacks")
    assert answer["totals"]["tasks"] >= 2
    assert any("list of tasks" in note for note in answer["notes"])


def test_unwind_tables_that_are_garbage(dump: Dump) -> None:
    """Every frame that is still shown is one that the stack really has, or is marked."""
    known, _task, whole = dump.init()
    table = known.code.texts[0].table or next(text.table for text in known.code.texts if text.table)
    random.seed(1)
    dump.put(table.entries, random.randbytes(table.count * 6))
    found = dump.init()[2]
    assert whole.user is not None
    assert found.frames[0].pc == whole.frames[0].pc
    assert len(found.frames) <= 256
    trapped = {frame.pc for frame in whole.frames if frame.trap is not None}
    assert trapped <= {frame.pc for frame in found.frames}


@pytest.mark.quick("nothing")
@pytest.mark.parametrize("described", [True, False], ids=["debug_frame", "nothing"])
def test_a_module_that_was_built_without_objtool(described: bool, tmp_path: Path) -> None:
    """It has no ORC, neither in memory nor in its file. The compiler's .debug_frame is in the file."""
    guest = kernel.guest("6.1", "null")
    file = tmp_path / guest.module.name
    removed = [".orc_unwind*", ".rela.orc_unwind*", *(() if described else (".debug_frame", ".rela.debug_frame"))]
    argv = ["objcopy", "-w", *(word for name in removed for word in ("-R", name)), guest.module, file]
    subprocess.run(argv, check=True)
    dump = Dump(modules=(*guest.kernel.debug, file))
    count = find_module(dump.prog, "dmods_guest").arch.num_orcs
    assert int(count) > 0
    dump.put(int(count.address_of_()), struct.pack("<I", 0))
    rows = frames_of(ask(dump.kernel, "findstack"))
    at = next(n for n, row in enumerate(rows) if row["pt_regs"])
    assert int(rows[at]["pc"], 16) == guest.truth["at_null"]
    printed = call_trace(guest.console, "Call Trace:")
    if described:
        assert [row["name"].rpartition("`")[2] for row in rows[at + 1 : -1]] == printed[:-1]
        assert not [row for row in rows if row.get("gap")]
    else:
        assert rows[at + 1]["gap"]


def test_a_log_whose_counters_lie(dump: Dump) -> None:
    ring = dump.prog["prb"].desc_ring
    dump.put(int(ring.head_id.counter.address_of_()), struct.pack("<Q", 2**61))
    answer = ask(dump.kernel, "panicinfo")
    assert any("log is damaged" in note for note in answer["notes"])
    record = answer["tables"][0]["rows"][0]
    assert int(record["pc"], 16) == dump.guest.truth["at_null"]
    # Without the log, the instruction and its registers show the address that it could not access.
    assert int(record["address"], 16) == dump.guest.truth["fault_address"]


def test_a_kernel_that_has_not_panicked() -> None:
    """A dump of a running guest looks so: panic_cpu is not taken, and the log has no panic."""
    dump = Dump("6.1", "sysrq")
    dump.put(int(dump.prog["panic_cpu"].counter.address_of_()), struct.pack("<i", -1))
    ring = dump.prog["prb"].desc_ring
    dump.put(int(ring.head_id.counter.address_of_()), struct.pack("<Q", int(ring.tail_id.counter)))
    record = ask(dump.kernel, "panicinfo")["tables"][0]["rows"][0]
    assert record["message"] == "the kernel had not panicked when the dump was taken"
    for name in ("findstack", "trapframe", "files"):
        with pytest.raises(UsageError) as caught:
            ask(dump.kernel, name)
        assert caught.value.how == f"give a task: {name} PID, NAME or ADDRESS"
    assert ask(dump.kernel, "findstack", "1")["tables"]


def test_what_is_no_task(dump: Dump) -> None:
    for text in ("0xffffffffdead0000", "no such name", "99999", "-1"):
        with pytest.raises(UsageError):
            ask(dump.kernel, "findstack", "--", text)


@pytest.fixture(scope="module")
def without_modules() -> Kernel:
    return Kernel(open_program(kernel.guest("6.1", "null"), modules=False))


def test_a_module_without_its_file_is_named_by_the_kernels_own_table(without_modules: Kernel) -> None:
    record = ask(without_modules, "panicinfo")["tables"][0]["rows"][0]
    assert record["where"].startswith("dmods_guest`guest_crash_null+0x")
    assert "source" not in record
    frames = frames_of(ask(without_modules, "findstack"))
    assert [row["name"] for row in frames if "`" in row["name"]][1].startswith("dmods_guest`guest_write+")


def test_a_crash_kernels_dump_without_the_functions_that_died() -> None:
    """Their return addresses are overwritten. The trap is still known by its pt_regs, and what is missing is said."""
    dump = Dump("6.1", "null", "kexec")
    _known, _task, whole = dump.init()
    at = next(n for n, frame in enumerate(whole.frames) if frame.trap is not None)
    for frame in whole.frames[:at]:
        dump.put(frame.sp - 8, bytes(8))
    trap = whole.frames[at].trap
    assert trap is not None
    assert trap.entry is not None
    dump.put(trap.address - 8, struct.pack("<Q", trap.entry))  # that of the entry code stays
    row = ask(dump.kernel, "findstack")["tables"][0]["rows"][0]
    assert [int(frame["pc"], 16) for frame in row["stack"]] == [frame.pc for frame in whole.frames[at:]]
    assert "the functions that ran after it are not on the stack" in row["stack"][0]["note"]
    (record,) = ask(dump.kernel, "panicinfo")["tables"][0]["rows"]
    assert (int(record["pc"], 16), int(record["pt_regs"], 16)) == (trap.pc, trap.address)


def test_a_crash_kernels_dump_without_pt_regs() -> None:
    """The registers that the dump has for the CPU are those of the trap all the same."""
    dump = Dump("6.1", "null", "kexec")
    _known, _task, whole = dump.init()
    trap = next(frame.trap for frame in whole.frames if frame.trap is not None)
    dump.put(trap.address - 8, bytes(8))
    answer = ask(dump.kernel, "panicinfo")
    (record,) = answer["tables"][0]["rows"]
    assert int(record["pc"], 16) == trap.pc == dump.guest.truth["at_null"]
    assert record["instruction"].startswith("movl ")
    for name, value in trap.registers.items():
        assert name == "orig_rax" or int(record[name], 16) == value
    assert "pt_regs" not in record
    assert any("no pt_regs is on the stack" in note for note in answer["notes"])
