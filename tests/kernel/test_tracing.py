"""Stacks that go through kprobes, ftrace, kretprobes, the function graph tracer and BPF.

The guest dies below all of them. Its kernel prints its own trace, and its module knows where it put its probes.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Optional

import pytest

from drgnext.commands import findstack
from drgnext.kernel.dump.cached_memory import Pages
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.stacks import orc
from drgnext.kernel.stacks.frames import Frame, StackWalker
from drgnext.kernel.stacks.made_code import MadeCode, MadeCodes
from drgnext.kernel.stacks.traps import StackRange
from drgnext.kernel.stacks.traps.x86_64 import X86_64
from drgnext.kernel.stacks.unwind_x86 import OrcUnwinder
from fixtures import kernel
from tests.kernel.crashed import Death, died, frames_of, names, open_program
from tests.output.test_schema import wrong

RELEASES = ("6.1", "6.12", "5.10", "sid")
TRACED = [(release, crash) for release in RELEASES for crash in kernel.TRACED]

#: The functions of each death, from the one that faulted to the entry from user space, as the sources have them. The
#: module's own are in dmods_trace.c. A set has the names that a function has had. "*" is what it may call in between.
GO = ["guest_trace_write", "proc_reg_write", "vfs_write", "ksys_write", "do_syscall_64", "entry_SYSCALL_64"]
SOURCES = {
    "traced": [
        *("guest_traced_fault", "guest_probe_hit", "kprobe_ftrace_handler", "*", "ftrace_trampoline"),
        *("bpf_user_rnd_u32", "bpf_prog_F", "bpf_prog_dmods_filter", "sk_filter_trim_cap", "unix_dgram_sendmsg", "*"),
        *("__sys_sendto", "__x64_sys_sendto", "do_syscall_64", "entry_SYSCALL_64"),
    ],
    "classic": [
        *("guest_traced_fault", "guest_probe_hit", "kprobe_ftrace_handler", "*", "ftrace_trampoline"),
        *("bpf_user_rnd_u32", "bpf_prog", "sk_filter_trim_cap", "unix_dgram_sendmsg", "*"),
        *("__sys_sendto", "__x64_sys_sendto", "do_syscall_64", "entry_SYSCALL_64"),
    ],
    "ops": ["guest_traced_fault", "guest_ops_hit", "*", "ftrace_trampoline", "guest_traced_by_ops", "guest_go", *GO],
    "optprobe": [
        *("guest_traced_fault", "guest_probe_hit", "opt_pre_handler", "optimized_callback", "kprobe_optinsn_page"),
        *("guest_optimized", *GO),
    ],
    # The trampoline of __sys_sendto calls it, and skips the call that led to the trampoline when it returns.
    "fentry": [
        *("guest_traced_fault", "guest_probe_hit", "kprobe_ftrace_handler", "*", "ftrace_trampoline"),
        *("bpf_user_rnd_u32", "bpf_prog_dmods_entry", "bpf_trampoline", "unix_dgram_sendmsg", "*", "__sys_sendto"),
        # In 7.2 the function jumps to the trampoline: then nothing leads back.
        *("bpf_trampoline", "__sys_sendto?", "__x64_sys_sendto", "do_syscall_64", "entry_SYSCALL_64"),
    ],
    "retprobe": ["guest_traced_fault", "guest_return_hit", "*", "guest_go", *GO],
}
#: Between: the calls of one kernel that another does not have.
BETWEEN = {
    *("ftrace_ops_assist_func", "sock_sendmsg", "__sock_sendmsg", "kretprobe_rethook_handler"),
    *("rethook_trampoline_handler", "arch_rethook_trampoline_callback", "arch_rethook_trampoline"),
    *("__kretprobe_trampoline_handler", "trampoline_handler", "kretprobe_trampoline"),
}


def trapped(death: Death) -> list[dict[str, Any]]:
    """Return the frames from the one that faulted to the outermost."""
    frames = frames_of(death.findstack)
    return frames[next(n for n, frame in enumerate(frames) if frame["pt_regs"]) :]


def plain(name: str) -> str:
    """Return the function's name without the module, the offset, GCC's suffixes and the tag of a BPF program."""
    # A trampoline is named by the number of its function's type, and in 5.10 by one of two halves.
    name = name.rpartition("`")[2].partition("+")[0].partition(".")[0]
    return re.sub(r"^(bpf_prog(?=_[0-9a-f]{16})|bpf_trampoline)_[0-9a-f]+(_[01]$)?", r"\1", name)


@pytest.mark.thorough("it needs a crash kernel")
def test_a_dump_by_kexec_has_the_same_frames() -> None:
    _check_frames(died("6.1", "traced", "kexec"), "traced")


@pytest.mark.parametrize(("release", "crash"), TRACED)
def test_no_frame_is_missing_and_none_invented(release: str, crash: str) -> None:
    _check_frames(died(release, crash), crash)


def _check_frames(death: Death, crash: str) -> None:
    ours = [plain(frame["name"]) for frame in trapped(death)]
    if crash == "xdp":
        _check_packet(ours)
        return
    expected = list(SOURCES[crash])
    while expected:
        wanted = expected.pop(0)
        if wanted == "*":
            while ours[0] in BETWEEN and ours[0] != expected[0]:
                ours.pop(0)
        elif not wanted.endswith("?") or ours[0] == wanted[:-1]:
            assert ours.pop(0) == wanted.rstrip("?")
    assert not ours
    assert death.findstack["totals"]["end"] == "entered from user space"
    assert death.findstack["totals"]["gaps"] == 0
    assert not [frame for frame in trapped(death) if "guess" in frame["note"]]


def _check_packet(ours: list[str]) -> None:
    """A packet takes another way through the network's code in each kernel. The trace of the kernel has the rest."""
    program = ours.index("bpf_prog_dmods_xdp")
    assert ours[program - 1] == "bpf_user_rnd_u32"
    assert ours[program + 1] in ("bpf_prog_run_generic_xdp", "netif_receive_generic_xdp", "do_xdp_generic")
    soft, sent = ours.index("net_rx_action"), ours.index("udp_sendmsg")  # on the stack of interrupts, and init's own
    assert program < soft < sent < ours.index("__sys_sendto")


@pytest.mark.thorough("it needs guests that died otherwise")
@pytest.mark.parametrize("release", RELEASES)
def test_programs_of_trampolines_and_packets_have_names_and_lines(release: str) -> None:
    for crash, name, line in (("fentry", "dmods_entry", 23), ("xdp", "dmods_xdp", 33)):
        death = died(release, crash)
        (frame,) = (one for one in trapped(death) if plain(one["name"]) == f"bpf_prog_{name}")
        assert frame["source"] == {"file": "/src/dmods_more.c", "line": line}
        listed = {plain(row["where"]): row["on_stack"] for row in _tracing(death) if row["kind"] == "BPF"}
        assert listed[f"bpf_prog_{name}"] is True
        if crash == "fentry":
            assert (listed["bpf_trampoline"], listed["bpf_prog_dmods_exit"]) == (True, False)
            direct = [row for row in _tracing(death) if row["calls"] == "call_direct_funcs"]
            assert {(row["how"], row["on_stack"]) for row in direct} == {("by direct calls", True)}


@pytest.mark.parametrize(("release", "crash"), TRACED)
def test_every_place_that_the_kernel_is_sure_of_is_a_frame(release: str, crash: str) -> None:
    """The kernel prints an address without a name for code that it has made, and the handler of a kretprobe as the end
    of another function. Some of its traces end early."""
    death = died(release, crash)
    ours = [(frame["pc"], name) for frame, name in zip(trapped(death), names(trapped(death)))][1:]
    compared = 0
    for place in _printed(death):
        offset, _slash, size = place.partition("+")[2].partition("/")
        if offset == size and offset:
            ours.pop(0)  # the true return address, which the kernel does not print
            continue
        pc, name = ours.pop(0)
        # sock_sendmsg and others are printed with a question mark, as is all that was replaced twice.
        while name.partition("+")[0] in BETWEEN and place.partition("+")[0] != name.partition("+")[0]:
            pc, name = ours.pop(0)
        if place.startswith("0x"):
            assert int(place, 16) == int(pc, 16)
        elif "SYSCALL" not in place:
            assert _tagless(place.partition("/")[0]) == _tagless(name)
        compared += 1
    assert compared >= 3


@pytest.mark.thorough("it needs a guest of another machine")
def test_arm64_has_the_same_frames() -> None:
    """Its kernel leaves out the callers of functions that trapped before they made a frame record."""
    death = died("6.1-arm64", "traced")
    rows = trapped(death)
    found = iter(rows)
    for name in (*SOURCES["traced"][:2], *SOURCES["traced"][5:10], "__sys_sendto", "__arm64_sys_sendto", "el0_svc"):
        assert name == "*" or any(plain(row["name"]) == name for row in found), name
    console = death.guest.console
    console = console[console.index("Call trace:") : console.index("Code:", console.index("Call trace:"))]
    printed = [place for place in re.findall(r"\]  (\w\S*)\+0x", console) if "el0t_64" not in place]
    assert len(printed) > 10
    found = iter(rows)
    for place in printed:
        assert any(row["name"].rpartition("`")[2].partition("+")[0] == place for row in found), place
    assert death.findstack["totals"]["gaps"] == 0


def _tagless(place: str) -> str:
    """Return the place. 5.10 prints either of the two tags that a program of several functions has.

    It also has several names for the function that changes to the stack of interrupts.
    """
    return re.sub(
        r"^asm_call_(irq|sysvec)_on_stack", "asm_call_on_stack", re.sub(r"^bpf_prog_[0-9a-f]{16}", "bpf_prog", place)
    )


def _printed(death: Death) -> list[str]:
    """Return function+offset/size, or the address, of each line of the kernel's own trace that it was sure of."""
    console = death.guest.console
    lines = console[console.index("Call Trace:") : console.index("Modules linked in")].splitlines()
    found = (re.match(r"^\[[ .0-9]+\](?:\[ *[CT]\d+\])?  ((?:\w\S*\+0x\w+/|0xf)\w+)", line) for line in lines)
    return [match[1] for match in found if match]


@pytest.mark.parametrize(("release", "crash"), [one for one in TRACED if one[1] == "optprobe"])
def test_an_optimized_kprobe_is_where_the_module_put_it(release: str, crash: str) -> None:
    """The kernel does not find its way out of the detour: it prints the frames behind it with question marks."""
    death = died(release, crash)
    (frame,) = (frame for frame in trapped(death) if frame.get("found") == "detour")
    assert int(frame["pc"], 16) == death.guest.truth["at_optimized"]
    assert frame["exact"] is True
    console = death.guest.console
    (row,) = (row for row in _tracing(death) if row["on_stack"])
    assert (row["kind"], row["how"]) == ("kprobe", "by a jump (optimized)")
    assert int(row["address"], 16) == death.guest.truth["at_optimized"]
    for name in names(trapped(death))[trapped(death).index(frame) + 1 : -1]:
        assert f" ? {name}/" in console, name


@pytest.mark.parametrize("release", RELEASES)
def test_panicinfo_lists_what_traces_and_what_is_on_the_stack(release: str) -> None:
    # A kprobe of 6.12 is behind the endbr64 of its function.
    rows = {(row["kind"], plain(row["where"])): row for row in _tracing(died(release, "traced"))}
    assert rows["kprobe", "bpf_user_rnd_u32"]["calls"] == "dmods_guest`guest_probe_hit"
    assert rows["kretprobe", "unix_dgram_sendmsg"]["calls"] == "dmods_guest`guest_return_ignored"
    assert {row["on_stack"] for (_kind, where), row in rows.items() if where in LISTED} == {True}
    assert {where for _kind, where in rows} >= LISTED


LISTED = {"bpf_user_rnd_u32", "unix_dgram_sendmsg", "bpf_prog_dmods_filter", "bpf_prog_F", "graph_ops"}


def _tracing(death: Death) -> list[dict[str, Any]]:
    (table,) = (table for table in death.panicinfo["tables"] if table["name"] == "tracing")
    return list(table["rows"])


@pytest.mark.parametrize("release", [*RELEASES, "6.1-arm64"])
def test_frames_of_bpf_have_the_lines_of_their_btf(release: str) -> None:
    """The guest made up the lines (trace.c)."""
    frames = {plain(frame["name"]): frame for frame in trapped(died(release, "traced"))}
    assert frames["bpf_prog_F"]["source"] == {"file": "/src/dmods_filter.c", "line": 17}
    assert frames["bpf_prog_dmods_filter"]["source"] == {"file": "/src/dmods_filter.c", "line": 42}
    assert not frames["bpf_prog_F"].get("inlined")


def test_without_tracing_on_the_stack_nothing_is_listed() -> None:
    assert "tracing" not in [table["name"] for table in died("6.1", "null").panicinfo["tables"]]


def test_frames_that_tracing_hid_say_so() -> None:
    notes = {plain(frame["name"]): frame["note"] for frame in trapped(died("6.1", "traced"))}
    assert "return_to_handler in place of" in notes["unix_dgram_sendmsg"]
    assert "arch_rethook_trampoline in place of" in (notes.get("sock_sendmsg") or notes["__sock_sendmsg"])


def test_a_cut_stack_has_a_row_where_frames_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the lists of the tracers the walk stops at ftrace's trampoline, as it did for code that nobody lists."""
    from drgnext.kernel.stacks import probes
    from tests.kernel.crashed import ask

    whole = trapped(died("6.1", "traced"))
    at = next(n for n, frame in enumerate(whole) if plain(frame["name"]) == "ftrace_trampoline")
    for reader in ("_kprobes", "_ftrace", "_bpf", "_slots"):
        monkeypatch.setattr(probes, reader, lambda prog: iter(()))
    target = Kernel(open_program(died("6.1", "traced").guest))
    answers = {name: ask(target, name) for name in ("findstack", "stacks", "panicinfo", "trapframe")}
    (row,) = answers["findstack"]["tables"][0]["rows"]
    gap = row["stack"][-1]
    assert (gap["gap"], gap["pc"], row["gaps"]) == (True, None, 1)
    assert gap["address"] == whole[at]["pc"]
    expected = f"frames are missing here: no unwind information for {whole[at]['pc']}"
    assert gap["name"] == f"... {expected}"
    assert [frame["pc"] for frame in row["stack"][:-1]][-at:] == [frame["pc"] for frame in whole[:at]]
    assert answers["findstack"]["totals"]["end"] == "entered from user space"
    same = [one for one in answers["stacks"]["tables"][0]["rows"] if 1 in one["pids"]]
    assert [one["stack"][-1] for one in same] == [gap]
    for name in ("panicinfo", "trapframe"):
        assert f"the stack is not whole: {expected}" in answers[name]["notes"]
    assert not [fault for answer in answers.values() for fault in wrong(answer)]
    (text, *_rest) = findstack.COMMAND.run(target, findstack.COMMAND.parser().parse_args([])).tables
    assert [row[2] for row in list(text.rows)][-1] == f"... {expected}"


class _Code:
    """Code without unwind tables: a function every 4096 bytes, and a call before each address that ends in 5."""

    def is_code(self, address: int) -> bool:
        return 0x10000 <= address < 0x20000

    is_entry = is_freed = lambda self, address: False

    def after_call(self, address: int) -> bool:
        return self.is_code(address) and address & 0xF == 5

    def made_at(self, address: int) -> Optional[MadeCode]:
        return None

    def rule(self, pc: int) -> Optional[orc.Rule]:
        return None


class _Returns:
    """The lists of a tracer: the true return address by the place of the one that replaced it."""

    def __init__(self, true: dict[int, int]) -> None:
        self._true = true

    def replaced_by(self, pc: int) -> str:
        return "return_to_handler" if pc == 0x1F000 else ""

    within = replaced_by

    def true(self, task: int, pc: int, places: tuple[int, ...]) -> Optional[int]:
        return self._true.get(places[0])


STACK = StackRange("task", 0xFFFF_8000_0000_0000, 0xFFFF_8000_0000_1000)


@pytest.mark.parametrize("known", [True, False])
def test_a_kernel_with_frame_pointers_has_its_return_addresses_replaced_too(known: bool) -> None:
    """Two frames on a stack made by hand. The return address of the inner one was replaced."""
    low = STACK.start
    words = {0: low + 0x40, 8: 0x10105, 0x40: low + 0x80, 0x48: 0x1F000, 0x80: 0, 0x88: 0x12345}
    data = bytearray(0x1000)
    for at, word in words.items():
        struct.pack_into("<Q", data, at, word)
    memory = Pages(lambda address, size: bytes(data) if address == low else b"")
    code: Any = _Code()
    returns: Any = _Returns({low + 0x48: 0x11115} if known else {})
    first = Frame(0x10005, low, True, "cpu", {"rbp": low})
    stack = StackWalker(memory, X86_64(), code, OrcUnwinder(memory, code, returns), []).walk(first, STACK)
    pcs = [0x10005, 0x10105, 0x11115, 0x12345]
    assert [frame.pc for frame in stack.frames] == (pcs if known else pcs[:2])
    assert stack.end == ("no tables" if known else "replaced")
    assert [frame.through for frame in stack.frames][2:3] == (["return_to_handler"] if known else [])


def test_bytes_of_a_call_in_bpf_are_no_end_of_a_function() -> None:
    """The displacement of a call may have the bytes of `leave` and `ret`. The frame pointer is still in place then."""
    start = STACK.start - 0x1000
    prologue = b"\x0f\x1f\x44\x00\x00\x55\x48\x89\xe5"
    content = prologue + b"\xe8\xc9\xc9\xc3\xc9" + b"\xc9\xc3"
    back = start + len(prologue) + 5
    low = STACK.start
    data = bytearray(0x1000)
    struct.pack_into("<QQ", data, 0x40, 0, 0x10105)
    pages = {start: content.ljust(0x1000, b"\xcc"), low: bytes(data)}
    memory = Pages(lambda address, size: pages.get(address, b""))
    made = MadeCodes({}, memory)  # type: ignore[arg-type]
    program = MadeCode(start, start + len(content), "bpf_prog", "bpf")
    code: Any = _Code()
    code.made_at = lambda address: program if start <= address < program.end else None
    code.rule = lambda pc: made.rule(program, pc)
    returns: Any = _Returns({})
    unwinder = OrcUnwinder(memory, code, returns)
    registers = {"rbp": low + 0x40}
    (called,) = (unwinder.step(Frame(back, low, False, "unwind", registers), 0).frame,)
    assert called is not None
    assert (called.pc, called.sp) == (0x10105, low + 0x50)
    # At the entry, behind the push, and at the return there is no frame, or half of one.
    rules = [made.rule(program, start + at) for at in (0, 5, 6, 9, len(content) - 1)]
    assert [(rule.sp, rule.sp_offset) for rule in rules if rule is not None] == [
        *(("rsp", 8), ("rsp", 8), ("rsp", 16), ("rbp", 16), ("rsp", 8)),
    ]
