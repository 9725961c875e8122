"""The kprobes, callbacks of ftrace and BPF programs of a kernel, if the stack that died goes through one."""

from __future__ import annotations

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.stacks.frames import Stack
from drgnext.kernel.stacks.threads import Threads

# Functions that only run for a probe. The frames of some probes have no other sign of it.
_RUNNERS = frozenset(
    {
        *("kprobe_ftrace_handler", "kprobe_int3_handler", "aggr_pre_handler", "opt_pre_handler", "optimized_callback"),
        *("kprobe_breakpoint_handler", "kprobe_exceptions_notify", "ftrace_ops_list_func", "ftrace_ops_assist_func"),
        *("arch_ftrace_ops_list_func", "__kretprobe_trampoline_handler", "rethook_trampoline_handler"),
        *("kretprobe_rethook_handler", "function_graph_enter", "ftrace_return_to_handler", "trace_call_bpf"),
    }
)


_GRAPH = "graph_ops"  # the ftrace_ops of the function graph tracer
_DIRECT = "call_direct_funcs"  # of an ftrace_ops for code that functions call themselves (trampolines of BPF)


class Tracer(NamedTuple):
    """A probe or a program: what it is, where it is, what it calls, how, and whether it is on the stack."""

    kind: str
    address: int
    where: str
    calls: str
    how: str
    on_stack: bool


def tracers(threads: Threads, stack: Stack) -> list[Tracer]:
    """Return everything that traces, those on the stack first. Return [] if the stack goes through none of them."""
    if not any(_traced(threads, stack, index) for index in range(len(stack.frames))):
        return []
    made = threads.code.made
    inside = [threads.places.inside(frame) for frame in stack.frames]
    here = {one.start for one in map(made.at, inside) if one is not None}
    starts = {function.start for function in map(threads.places.function, inside) if function is not None}
    exact = {frame.pc for frame in stack.frames}
    pending = _pending(threads, stack)
    trampolines = any(one.name.startswith("bpf_trampoline_") and one.start in here for one in made.probes.bpf)
    found = []
    for probe in made.probes.kprobes:
        on = bool(starts.intersection(probe.handlers)) or (probe.detour is not None and probe.detour[0] in here)
        calls = ", ".join(map(threads.places.describe, probe.handlers))
        function = threads.places.function(probe.address)
        on = on or probe.address in exact or (probe.returns and function is not None and function.start in pending)
        where = threads.places.describe(probe.address)
        found.append(Tracer("kretprobe" if probe.returns else "kprobe", probe.address, where, calls, probe.how, on))
    for ops in made.probes.ftrace:
        where = _variable(threads, ops.structure)
        graph = where == _GRAPH and any(frame.through == "return_to_handler" for frame in stack.frames)
        on = graph or ops.function in starts or (ops.trampoline is not None and ops.trampoline[0] in here)
        calls = threads.places.describe(ops.function)
        how = "by its own trampoline" if ops.trampoline is not None else "by the list of all callbacks"
        if calls == _DIRECT:
            how = "by direct calls"
            on = on or (ops.direct in here if ops.direct else trampolines)
        found.append(Tracer("ftrace", ops.structure, where, calls, how, on))
    for image in made.probes.bpf:
        found.append(Tracer("BPF", image.start, image.name, "", "", image.start in here))
    return sorted(found, key=lambda one: not one.on_stack)


def _pending(threads: Threads, stack: Stack) -> set[int]:
    """Return the first addresses of the functions whose return address tracing has replaced."""
    found = set()
    for callee, frame in zip(stack.frames, stack.frames[1:]):
        function = threads.places.function(threads.places.inside(callee))
        if frame.through and function is not None:
            found.add(function.start)
    return found


def _variable(threads: Threads, address: int) -> str:
    """Return the name of the variable at the address, or ""."""
    try:
        return str(threads.prog.symbol(address).name)
    except LookupError:
        return ""


def _traced(threads: Threads, stack: Stack, index: int) -> bool:
    """Return whether the frame is there because of a probe or a BPF program."""
    frame = stack.frames[index]
    if frame.through or frame.found == "detour":
        return True
    function = threads.places.function(threads.places.inside(frame))
    if function is None:
        return False
    return threads.code.made_at(function.start) is not None or function.name.partition(".")[0] in _RUNNERS
