"""The report of a triage, for people at a terminal and as JSON: at most one screen, the verdict first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal, Optional

from dmods.base.sizes import human_size
from dmods.finding import FATAL, Finding
from dmods.output.next_command import all_as_typed, as_typed
from dmods.report import Address, Column, Report, Table, Value
from dmods.triage import screen
from dmods.triage.answer import PASSED, PYTHON, Crash, Holder, Line, Memory, Triage
from dmods.triage.columns import CHECKS, CRASH, FINDINGS, HOLDER, IDENTITY, LINES, MEMORY, PLACES, STACK, TRUST, UNKNOWN
from dmods.triage.names import function_of
from dmods.triage.screen import filled, fitted
from dmods.triage.signature import OUTERMOST, Signature, signature

_VERDICT = 3  # findings that the verdict names
_FRAMES = 5  # lines of the stack
_PASSED = 3  # so many lines of a runtime above them are left out
_LISTED = 4  # further findings
_UNKNOWN = 3  # lines of what could not be known
_LATER_LINES = 2  # of the sentence of a later finding
_INNER = 3  # frames without the outer ones
_BRIEF = ("program", "package", "unit", "container", "host", "machine", "uptime")  # of the identity
_HANGS = 5  # columns that the further lines of a sentence, or words at the end of a line, leave free
_LEAST_SAID = 40  # characters of it that say something
_LEAST_HELD = 1 << 20  # bytes: a holder of less gives way to the crash
_PYSTACK = "pystack"
_STACK = "findstack"  # the command with the whole stack
_LONGEST = 400  # characters of one text
_LONGEST_HELD = 640  # of who holds most memory: the key of the entry may stand at the end
_BAR = 60  # characters
_MARKS = "#=+-*o:~%&@.x"


def triage_report(found: Triage, kind: str, whole: bool = False, notes: Sequence[str] = ()) -> Report:
    """Return the report. ``kind`` is "process" or "kernel". ``whole``: its text may be longer than one screen.

    ``notes`` follow it on the screen.
    """
    report = Report()
    fits = partial(_text, found, kind)
    report.tables.extend(_text(found, kind, frozenset(), True) if whole else fitted(found, fits, notes))
    report.tables.append(FINDINGS.table([_row(n, each) for n, each in enumerate(found.findings, 1)], only="json"))
    report.tables.extend(_for_json(found))
    for schema, facts in ((IDENTITY, found.identity), (TRUST, found.trust)):
        report.tables.append(schema.table([tuple(line) for line in facts], only="json"))
    named = crash_signature(found)
    report.totals = {
        "kind": kind,
        "findings": len(found.findings),
        "first": found.findings[0].kind if found.findings else None,
        "checks": list(found.checks),
        **found.subject,
        "signature": named.text if named is not None else None,
        "signature_exact": named.exact if named is not None else None,
        "signature_loose": named.loose if named is not None else None,
        "memory_bytes": found.memory.total if found.memory is not None else None,
        "memory": found.memory.values if found.memory is not None else None,
    }
    return report


def _text(found: Triage, kind: str, without: frozenset[str], whole: bool = False) -> list[Table]:
    """Return the tables for people, without these parts."""
    tables = [Table("verdict", LINES, list(_verdict(found, kind, without)), style="plain", only="text")]
    if found.crash is not None:
        tables.extend(_crash(found, found.crash, without))
    if found.memory is not None and screen.MEMORY not in without:
        tables.extend(_memory(found.memory, screen.DRAWN not in without))
    tables.extend(_others(found.findings, None if whole else _LISTED, without))
    if screen.OK not in without:
        tables.extend(_passed(found))
    if screen.GAPS not in without:
        tables.extend(_unknown(found, None if whole else _UNKNOWN))
    return tables


def _for_json(found: Triage) -> Iterator[Table]:
    """Yield the tables of JSON, but for the findings and what was examined."""
    if found.crash is not None:
        yield _record([Line("ended", found.crash.sentence), *found.crash.facts], only="json")
        yield STACK.table([(line,) for line in found.crash.frames], only="json")
        yield PLACES.table([tuple(place) for place in found.crash.places], only="json")
    if found.memory is not None:
        shares = zip(found.memory.parts, found.memory.percents())
        parts = [(part.name, part.bytes, float(percent), part.note, part.mapped) for part, percent in shares]
        yield MEMORY.table(parts, only="json")
    if found.holder is not None:
        yield HOLDER.table([_holder_row(found.holder)], only="json")
    rows = [(each.check, each.state, each.value, each.rule) for each in found.results]
    yield CHECKS.table(rows, only="json")
    yield UNKNOWN.table([(one.what, one.why, one.help or None) for one in found.unknown], only="json")


def crash_signature(found: Triage) -> Optional[Signature]:
    """Return the name of the crash and its keys, as reports on many dumps have them; None for what was alive."""
    crash = found.crash
    if crash is None or crash.alive:
        return None
    fatal = next((each.kind for each in found.findings if each.severity == FATAL), None)
    rows = [
        {**place._asdict(), "offset": f"{place.offset:#x}" if place.offset is not None else None}
        for place in crash.places
    ]
    return signature(found.subject.get("program"), fatal, crash.sentence, rows)


def verdict_sentence(found: Triage, kind: str) -> str:
    """Return the first line of the report."""
    ended = "" if found.crash is None else f" {found.crash.sentence[:1].upper()}{found.crash.sentence[1:]}."
    if not found.findings:
        checks = "1 check" if len(found.checks) == 1 else f"{len(found.checks)} checks"
        missed = f", and {len(found.missed)} could not run (see below)" if found.missed else ""
        return f"No finding: {checks} of this {kind} found nothing wrong{missed}.{ended}"
    number = len(found.findings)
    return f"{number} finding{'' if number == 1 else 's'}.{ended}"


def _verdict(found: Triage, kind: str, without: frozenset[str]) -> Iterator[tuple[Value, ...]]:
    yield (_cut(verdict_sentence(found, kind)),)
    for number, finding in enumerate(found.findings[:_VERDICT], 1):
        said = f"{number}. {finding.kind} ({finding.severity}, {finding.confidence}): {_cut(finding.what)}."
        yield (_ended(said, _LATER_LINES) if number > 1 and screen.ENDS in without else said,)
        if number > 1 and screen.LATER in without:
            continue
        for each in finding.evidence[: (2 if number == 1 else 1) if screen.PLACES not in without else 0]:
            yield (f"   at {each.address:#x}: {_cut(each.what)}",)
        if number == 1 and finding.parties.known and screen.WHO not in without:
            yield (f"   who: {_cut(finding.parties.text)}",)
        yield (f"   do ({finding.remedy_confidence}): {finding.remedy}",)
        if number == 1 and finding.alternative and screen.OTHER not in without:
            yield (f"   or: {_cut(finding.alternative)}",)
        if finding.next:
            yield (f"   type: {'; '.join(all_as_typed(finding.next[: 3 if screen.MORE not in without else 1]))}",)
    yield from _largest_holder(found, without)


def _largest_holder(found: Triage, without: frozenset[str]) -> Iterator[tuple[Value, ...]]:
    """Yield the line about what holds most memory, unless a finding above says the same.

    Without its end, it is cut to the width of the screen. The next command has a line of its own where it leaves too
    little, and gives way last. A line about little memory is left out.
    """
    holder = found.holder
    if holder is None or any(each.what == holder.what for each in found.findings[:_VERDICT]):
        return
    said, type_ = holder_sentence(holder), f" (type: {'; '.join(all_as_typed(holder.next))})"
    room = screen.WIDTH - len(type_) - len("..")
    if screen.HOLDER not in without or len(said) <= room:
        yield (_cut(said, _LONGEST_HELD) + type_,)
    elif holder.bytes >= _LEAST_HELD and len(said) - len(holder.what) + _LEAST_SAID <= room:
        yield (f"{said[:room]}..{type_}",)
    elif holder.bytes >= _LEAST_HELD:
        yield (said if len(said) <= screen.WIDTH else f"{said[: screen.WIDTH - len('..')]}..",)
        if screen.WHO not in without:
            yield (f"   type: {'; '.join(all_as_typed(holder.next))}",)


def holder_sentence(holder: Holder) -> str:
    """Return the line about what holds most memory."""
    return f"largest holder{', a possible suspect' if holder.is_suspect else ''}: {holder.what}"


def _holder_row(holder: Holder) -> tuple[Value, ...]:
    shares = (100 * each if each is not None else None for each in (holder.share, holder.share_of_process))
    return holder.what, holder.kind, holder.bytes, *shares, holder.address, list(holder.next), holder.is_suspect


def _ended(text: str, lines: int, before: int = _HANGS) -> str:
    """Return the text as far as it fits into so many lines, ``before`` columns from their start."""
    room = lines * (screen.WIDTH - before) - len("..")
    return text if len(text) <= room else f"{text[:room].rpartition(' ')[0]}.."


def _cut(text: str, longest: int = _LONGEST) -> str:
    """Return the text as far as it belongs on one screen. JSON has all of it."""
    return text if len(text) <= longest else text[:longest] + "..."


def _row(number: int, finding: Finding) -> tuple[Value, ...]:
    return (
        number,
        finding.kind,
        finding.severity,
        finding.confidence,
        finding.check,
        finding.what,
        [{"address": Address(each.address), "what": each.what} for each in finding.evidence],
        finding.remedy,
        list(finding.next),
        finding.weight,
        finding.subject or None,
        finding.remedy_confidence,
        finding.alternative or None,
        *(text or None for text in finding.parties),
    )


def _record(facts: Sequence[Line], only: Literal["text", "json"], title: str = "") -> Table:
    """Return the lines as a record. JSON has their names in lower case, without spaces."""
    if only == "json":
        return CRASH.record([(line.name.lower().replace(" ", "_"), _cut(line.text)) for line in facts], only=only)
    columns = [Column(line.name, title=line.name) for line in facts]
    row = tuple(_cut(line.text) for line in facts)
    return Table("crash", columns, [row], style="record", title=title, only="text")


def _brief(found: Triage) -> Iterator[Line]:
    """Yield one line about what died. The table "identity" has the rest."""
    known = {line.name: line.text for line in found.identity}
    if "program" in known:
        known["program"] = str(found.subject.get("program") or known["program"])
    if "uptime" in known:
        known["uptime"] = f"up {known['uptime']}"
    parts = [known[name] for name in _BRIEF if name in known]
    if parts:
        yield Line("of", ", ".join(parts))


def _crash(found: Triage, crash: Crash, without: frozenset[str]) -> Iterator[Table]:
    if screen.THREAD in without:
        lines = [(f"{each.name}: {each.text}",) for each in _brief(found)]
        yield from (Table("of", LINES, [line], style="plain", only="text") for line in lines)
        return
    named = crash_signature(found) if screen.SIGNATURE not in without else None
    # The first line of the verdict says how it ended.
    facts = [
        *_brief(found),
        *(_offered(line, screen.MORE not in without) for line in crash.facts),
        *([Line("signature", named.text)] if named is not None else []),
    ]
    if screen.ENDS in without:
        names = max(len(line.name) for line in facts) + len(": ")
        facts = [Line(line.name, _ended(line.text, 1, names)) for line in facts]
    yield _record(facts, only="text", title="The crash" if not crash.alive else "The first thread")
    passed = crash.runtime_frames if crash.runtime_frames >= _PASSED else 0
    frames = crash.frames[passed:]
    while frames and function_of(frames[-1].partition("  ")[0]) in OUTERMOST:
        frames = frames[:-1]
    shown = list(frames[: _INNER if screen.OUTER in without else _FRAMES])
    left = len(crash.frames) - passed - len(shown) + crash.more_frames
    footer = [f"    ... {left} more: {as_typed(_STACK) if screen.MORE not in without else _STACK}"] if left > 0 else []
    if shown:
        before = [(f"... {passed} lines of the runtime: {as_typed(_STACK)}",)] if passed else []
        rows = [*before, *((_cut(line),) for line in shown)]
        yield Table("stack", LINES, rows, style="plain", indent=4, joined=True, footer=footer, only="text")


def _offered(line: Line, whole: bool) -> Line:
    """Return the line with the command that shows all of it: ``whole``, with the words that name the dump."""
    if line.name != PYTHON:
        return line
    return Line(line.name, f"{line.text} (type: {as_typed(_PYSTACK)})" if whole else f"{line.text}: {_PYSTACK}")


def _memory(memory: Memory, drawn: bool) -> Iterator[Table]:
    percents = memory.percents()
    if not drawn:
        yield Table("memory_text", LINES, [(_largest(memory),)], style="plain", only="text")
        return
    marks = [_MARKS[index % len(_MARKS)] for index in range(len(memory.parts))]
    bar = "".join(mark * cells for mark, cells in zip(marks, _cells(percents)))
    title = f"Where memory went: {human_size(memory.total)} ({memory.total_name}{_beside(memory)})"
    yield Table("bar", LINES, [(f"[{bar}]",)], style="plain", title=title, only="text")
    parts = [
        f"{mark} {part.name} {human_size(part.bytes)} {percent} %{f' ({part.note})' if part.note else ''}"
        for mark, part, percent in zip(marks, memory.parts, percents)
        if percent
    ]
    yield Table("memory_text", LINES, list(filled(parts, ", ")), style="plain", joined=True, only="text")


def _largest(memory: Memory) -> str:
    """Return the total and the largest parts, as many as fit on a line."""
    shares = sorted(zip(memory.percents(), memory.parts), key=lambda each: -each[0])
    beside = f" ({human_size(memory.untouched)} more never touched)" if memory.untouched else ""
    line, left = f"Memory: {human_size(memory.total)}{beside}", 100
    for number, (percent, part) in enumerate(shares):
        text = f"{': ' if not number else ', '}{part.name} {percent} %"
        if len(line) + len(text) > screen.WIDTH - len(", others 100 %"):
            break
        line, left = line + text, left - percent
    return f"{line}, others {left} %" if 0 < left < 100 else line


def _beside(memory: Memory) -> str:
    return f"; {human_size(memory.untouched)} more is mapped and was never touched" if memory.untouched else ""


def _cells(percents: Sequence[int]) -> list[int]:
    """Return how many characters of the bar each part gets. They add up to the bar's width."""
    edges, sums = [0], 0
    for percent in percents:
        sums += percent
        edges.append(round(_BAR * sums / 100))
    return [after - before for before, after in zip(edges, edges[1:])]


def _others(findings: Sequence[Finding], most: Optional[int], without: frozenset[str]) -> Iterator[Table]:
    rest = findings[_VERDICT:]
    if rest:
        rows = [
            f"{number}. {each.kind} ({each.severity}): {_cut(each.what)}."
            for number, each in enumerate(rest, _VERDICT + 1)
        ]
        shown = [(_ended(row, 1) if screen.ENDS in without else row,) for row in rows[:most]]
        hidden = len(rest[most:]) if most is not None else 0
        footer = [f"... {hidden} more: -v shows them"] if hidden else []
        yield Table("others", LINES, shown, style="plain", title="More findings", footer=footer, only="text")


def _passed(found: Triage) -> Iterator[Table]:
    passed = [result for result in found.results if result.state == PASSED]
    # What they measured is worth the room where nothing was found.
    texts = [f"{each.check} ({each.value})" if each.value and not found.findings else each.check for each in passed]
    between = ", " if found.findings else "; "
    lines = list(filled([f"OK: {_cut(texts[0])}", *map(_cut, texts[1:])], between)) if texts else []
    if lines:
        yield Table("ok", LINES, lines, style="plain", only="text")


def _unknown(found: Triage, most: Optional[int]) -> Iterator[Table]:
    if found.unknown:
        rows = [(_cut(f"{one.what}: {one.why}{f' ({one.help})' if one.help else ''}"),) for one in found.unknown]
        hidden = len(rows[most:]) if most is not None else 0
        footer = [f"... {hidden} more: -v shows them"] if hidden else []
        title = "What could not be known"
        yield Table("gaps", LINES, rows[:most], style="plain", title=title, footer=footer, only="text")
