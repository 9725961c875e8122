"""gdb's own frames of a core's stacks, as an oracle. It shares no code with dmods."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from fixtures._cache import tool
from fixtures.cores import CoreSet
from fixtures.limits import HANG

# Inlined functions have no frame on the stack, nor do functions that ended in a jump to the next.
_SCRIPT = """
import gdb, json
def frames(limit):
    found, frame = [], gdb.newest_frame()
    while frame is not None and len(found) < limit:
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            sp = frame.read_register('rsp')
            found.append([frame.pc(), int(sp) & (1 << 64) - 1, frame.type() == gdb.SIGTRAMP_FRAME])
        frame = frame.older()
    return found
threads = {}
for thread in gdb.selected_inferior().threads():
    thread.switch()
    threads[thread.ptid[1]] = frames(LIMIT)
    if len(threads) == 1 or thread.num == 1:
        try:
            asm = gdb.newest_frame().architecture().disassemble(gdb.newest_frame().pc())[0]['asm']
        except gdb.error:
            asm = None
print('ORACLE ' + json.dumps([threads, asm]))
"""


def threads_of(core: CoreSet, limit: int = 300) -> tuple[dict[int, list[tuple[int, int, bool]]], str]:
    """Return for each tid (pc, sp, is signal trampoline), innermost first.

    Also return the instruction of the first thread.
    """
    argv = [tool("gdb"), "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load off"]
    argv += ["-iex", "set backtrace past-main on", "-iex", "set backtrace past-entry off"]
    if core.sysroot is not None:
        argv += ["-iex", f"set sysroot {core.sysroot}"]
    argv += [str(core.executable), str(core.core), "-ex", "python " + _SCRIPT.replace("LIMIT", str(limit))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=HANG, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("ORACLE ")), None)
    assert line is not None, done.stderr
    found: list[Any] = json.loads(line[len("ORACLE ") :])
    return {int(tid): [(pc, sp, sig) for pc, sp, sig in frames] for tid, frames in found[0].items()}, found[1]
