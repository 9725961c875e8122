"""The crash of a process, as the report shows it: message, signal, pc, source line, stack."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.base.raw_names import printable
from dmods.modules.lines import source_lines
from dmods.process import signals
from dmods.process.cause import explain_address
from dmods.process.source import source_text, text_lines
from dmods.process.stdio import open_files
from dmods.process.unwind import Frame
from dmods.triage.answer import Crash, Line
from dmods.triage.facts import ProcessFacts
from dmods.triage.names import first_own
from dmods.triage.portable_frames import places
from dmods.triage.python_line import gil_line, python_line

MOST_FRAMES = 40
_MOST_TEXT = 300
_MOST_FILES = 4  # with lost output
_MOST_LOST = 120  # bytes of lost output that are shown


def process_crash(facts: ProcessFacts) -> Crash:
    """Return how the process ended, and the stack of the thread that did it."""
    cause, target = facts.cause, facts.target
    thread = facts.thread
    alive = cause.signal is None and cause.trap is None
    lines = [Line("thread", f"{facts.named(thread)}, one of {len(target.threads()):,}")]
    if cause.abort_message:
        lines.append(Line("message", _short(facts.content(cause.abort_message, "message"))))
    what = explain_address(target, cause)
    if what:
        lines.append(Line("address", what))
    frame = cause.frame
    # A process that ended itself did so in raise(): the stack says more.
    if frame is not None and (alive or (cause.trap is not None and signals.is_fault(cause.trap))):
        lines.append(Line("pc", f"{frame.pc:#x} {facts.place(frame)}{_source(facts, frame)}"))
        if facts.instruction and cause.trap is not None and signals.is_fault(cause.trap):
            lines.append(Line("instruction", facts.instruction))
    python = python_line(facts)
    if python is not None:
        lines.append(python)
    gil = gil_line(facts)
    if gil is not None:
        lines.append(gil)
    lost = "; ".join(_unwritten(facts)) if not alive else ""
    if lost:
        lines.append(Line("unwritten", lost))
    frames = facts.frames
    left = max(0, len(frames) - MOST_FRAMES)
    shown = [_lines(facts, frame) for frame in frames[:MOST_FRAMES]]
    own = first_own(facts.names[: len(shown)])
    runtime = sum(map(len, shown[: own - 1])) if own else 0  # the frame that the program called stays
    told = list(places(target, frames, facts.names))
    return Crash(cause.message, alive, lines, [line for each in shown for line in each], left, told, runtime)


def _unwritten(facts: ProcessFacts) -> Iterator[str]:
    """Yield the output that stdio still had in its buffers: it was lost. Its end says what the program did last."""
    for each in [each for each in open_files(facts.target) if each.unwritten][:_MOST_FILES]:
        size = min(each.unwritten, _MOST_LOST)
        raw = facts.target.image().read(each.pending + each.unwritten - size, size)
        text = printable(raw.decode("utf-8", "backslashreplace"))
        before = "..." if size < each.unwritten else ""
        shown = facts.content(f"{before}{text}", "text") if raw else "not in the dump"
        yield f"{each.unwritten:,} bytes to descriptor {each.descriptor}: {shown}"


def _lines(facts: ProcessFacts, frame: Frame) -> list[str]:
    """Return the lines of a frame: the functions that were inlined there, and its own."""
    found = source_lines(facts.target).frames_at(frame.code_address, frame.exact)
    return list(text_lines(facts.place(frame), found))


def _source(facts: ProcessFacts, frame: Frame) -> str:
    found = source_lines(facts.target).frames_at(frame.code_address, frame.exact)
    return source_text(found[0]) if found else ""


def _short(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "..."
