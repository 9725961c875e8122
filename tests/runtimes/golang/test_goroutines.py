"""Goroutines out of cores, compared with what Go's runtime said of them at the same instant.

runtime.Stack leaves out frames of the runtime. What the runtime prints when the program dies (GOTRACEBACK=crash) has
all frames, with sp and pc.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Optional

import pytest

from dmods.corefile.target import CoreFile
from dmods.runtimes.golang.goroutines import RUNNING, Goroutine, find_goroutines, function_name, shown
from dmods.runtimes.golang.unwind import shown_places, stack_of
from fixtures import answers, gos
from fixtures.limits import HANG
from tests import corekit
from tests.output.test_schema import wrong

pytestmark = pytest.mark.thorough("it builds Go programs with several releases of Go")

SOURCE = Path(__file__).with_name("gostacks.go")
#: The oldest and the newest release, and those in which the layout of the runtime's data changed.
RELEASES = ("1.19.13", "1.20.14", "1.22.12", "1.24.13", "1.25.5", "1.27.4")
STRIP = ("", "-s -w")
LIMIT = 100_000
PRINTED = 97  # frames that releases before 1.21 print: 100, less those of the runtime that are not shown


class Program(NamedTuple):
    path: Path
    release: str
    emulator: Optional[Path] = None  # of the machine that it is built for


@pytest.fixture(scope="module", params=[(r, s) for r in ("host", *RELEASES) for s in STRIP], ids="".join)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Return a program that the machine's Go built, or that of another release."""
    release, flags = request.param
    other = release != "host"
    where = tmp_path_factory.mktemp("gostacks")
    own = {"GOTOOLCHAIN": "local", "GOCACHE": str(tmp_path_factory.getbasetemp() / f"cache-{release}")}
    environment = {
        **{key: value for key, value in os.environ.items() if key != "GOROOT"},
        "GO111MODULE": "off",
        "CGO_ENABLED": "0",
        **(own if other else {}),
    }
    build = [gos.go(release) if other else "go", "build", f"-ldflags={flags}", "-o", where / "gostacks", SOURCE]
    subprocess.run(build, check=True, cwd=where, env=environment, timeout=HANG)
    return Program(where / "gostacks", release)


def core(program: Program, how: str) -> Path:
    """Return a core of the program. Its word is in "truth" and "trace" beside it."""
    where = program.path.with_name(how)
    if not where.exists():
        where.mkdir()
        run = (program.emulator, program.path) if program.emulator else (program.path,)
        words = (*map(str, run[1:]), "truth", how, "trace")
        corekit.kernel_core(run[0], where, *words, env={"GOTRACEBACK": "crash"})
    wanted = "qemu_" if program.emulator else "core"  # the kernel dumps the emulator, too
    return next(path for path in where.iterdir() if path.name.startswith(wanted))


class Said(NamedTuple):
    """A goroutine, as the runtime described it. A frame is (function, file:line), and sp and pc where it said them."""

    state: str
    frames: list[tuple[object, ...]]
    rest: Optional[list[tuple[object, ...]]]  # the outermost ones, where it left some out between
    made_by: Optional[str]
    parent: Optional[int]


def said(text: str) -> dict[int, Said]:
    """Return the goroutines in a trace, by number."""
    return dict(filter(None, (_goroutine(part.strip().split("\n")) for part in text.split("\n\n"))))


def _goroutine(lines: list[str]) -> Optional[tuple[int, Said]]:
    head = re.match(r"goroutine (\d+) (?:gp=\S+ m=\S+ (?:mp=\S+ )?)?\[(.*)\]:", lines[0])
    if head is None:
        return None
    parts: list[list[tuple[object, ...]]] = [[]]
    made_by: Optional[str] = None
    parent: Optional[int] = None
    rest = iter(lines[1:])
    for line in rest:
        if line.startswith("..."):
            parts.append([])
        elif line.startswith("created by "):
            made = re.fullmatch(r"created by (\S+)(?: in goroutine (\d+))?", line)
            assert made is not None
            made_by, parent = made[1], int(made[2]) if made[2] else None
            next(rest)
        elif "(" not in line:
            break
        else:
            place, *more = next(rest).strip().split(" ")
            numbers = [int(word[3:], 16) for word in more if word[:3] in ("sp=", "pc=")]
            name = line.rpartition("(")[0]
            parts[-1].append(("runtime.gopanic" if name == "panic" else name, place, *numbers))
    assert len(parts) <= 2
    return int(head[1]), Said(head[2], parts[0], parts[1] if len(parts) > 1 else None, made_by, parent)


def alive(target: CoreFile) -> dict[int, Goroutine]:
    found = find_goroutines(target)
    assert found.problem == ""
    assert found.notes == []
    return {one.number: one for one in found.all if not one.dead}


def as_stack_prints(target: CoreFile, one: Goroutine) -> list[tuple[object, ...]]:
    stack = stack_of(target, one, LIMIT)
    assert stack.end == ""
    places = (place for _frame, kept in shown_places(stack.frames) for place in kept)
    return [(shown(place.function), f"{place.file}:{place.line}") for place in places]


def as_crash_prints(target: CoreFile, one: Goroutine) -> Iterator[tuple[object, ...]]:
    stack = stack_of(target, one, LIMIT)
    assert stack.end == ""
    for frame in stack.frames:
        for place in frame.places:
            numbers = () if place.inlined else (frame.sp, frame.pc)
            yield (shown(place.function), f"{place.file}:{place.line}", *numbers)


def same(frames: list[tuple[object, ...]], word: Said, old: bool) -> bool:
    if word.rest is not None:
        inner, outer = len(word.frames), len(frames) - len(word.rest)
        return frames[:inner] == word.frames and frames[outer:] == word.rest and inner <= outer
    if old and len(word.frames) >= PRINTED:
        return frames[: len(word.frames)] == word.frames
    return frames == word.frames


def is_old(program: Program) -> bool:
    return program.release.startswith(("1.19", "1.20"))


def test_every_stack_is_what_the_runtime_says(program: Program) -> None:
    path = core(program, "raw")
    target = CoreFile(str(path))
    ours, theirs = alive(target), said(path.with_name("truth").read_text())
    assert len(theirs) >= 24
    assert theirs.keys() <= ours.keys()
    for number in ours.keys() - theirs.keys():  # runtime.Stack leaves out the runtime's own
        assert function_name(target, ours[number].start).startswith("runtime."), number
    for number, word in theirs.items():
        one = ours[number]
        if number == 1:  # it has gone on since
            names = [name for name, _place in as_stack_prints(target, one)]
            assert names[-3:] == ["syscall.RawSyscall", "main.die", "main.main"]
            assert one.thread == target.threads()[0].tid
            continue
        assert same(as_stack_prints(target, one), word, is_old(program)), number
        assert function_name(target, one.made_at) == word.made_by
        assert word.parent in (one.parent, None)
        state, _comma, locked = word.state.partition(", ")
        assert bool(locked) == (one.locked is not None)
        if "main.spin" not in (name for name, *_rest in word.frames):  # runtime.Stack stops what runs
            assert one.state == state
    (spins,) = (one for one in ours.values() if "main.spin" in (name for name, *_rest in as_stack_prints(target, one)))
    # The scheduler may take its thread away, each 10 ms, and give it one again.
    assert spins.state in ("running", "runnable")
    assert spins.status != RUNNING or spins.thread in {thread.tid for thread in target.threads()[1:]}


@pytest.mark.parametrize("how", ["abort", "panic"])
def test_every_frame_is_where_the_runtime_says(program: Program, how: str) -> None:
    """Frames of the runtime, sp and pc are right, too. What runs while others print may go on meanwhile."""
    path = core(program, how)
    target = CoreFile(str(path))
    ours, theirs = alive(target), said(path.with_name("trace").read_text())
    exact = 0
    for number, word in theirs.items():
        if number == 0:  # the runtime's own stack
            continue
        frames = list(as_crash_prints(target, ours[number]))
        if ours[number].status == RUNNING or word.state.startswith("run"):
            names = [frame[0] for frame in frames]
            assert names[-2:] == [frame[0] for frame in word.frames[-2:]], number
            continue
        assert same(frames, word, is_old(program)), number
        exact += 1
    assert exact >= 20


def shown_states(target: CoreFile) -> dict[int, str]:
    """Return what `stacks` says of each goroutine."""
    rows = answers.by_name(answers.answer(target, "stacks"))["goroutine_stacks"]
    return {number: row["state"] for row in rows for number in row["ids"]}


def test_stacks_say_what_the_trace_says_in_brackets(program: Program) -> None:
    path = core(program, "abort")
    ours = shown_states(CoreFile(str(path)))
    theirs = {number: word.state for number, word in said(path.with_name("trace").read_text()).items() if number}
    still = {number: state for number, state in theirs.items() if not state.startswith("run")}
    assert len(still) >= 20
    assert {number: ours[number] for number in still} == still
    text = answers.printed("stacks", path, "-c", "main.locked")
    assert re.search(r"goroutine stack 1: goroutine \d+ \[chan receive, locked to thread\]", text), text


@pytest.mark.seldom("it waits for more than a minute")
@pytest.mark.parametrize("release", ["host", *RELEASES])
def test_stacks_say_for_how_many_minutes_a_goroutine_waits(release: str, tmp_path: Path) -> None:
    built = tmp_path / "gowaits"
    environment = {key: value for key, value in os.environ.items() if key != "GOROOT"}
    environment.update(GO111MODULE="off", CGO_ENABLED="0", GOTOOLCHAIN="local")
    go = "go" if release == "host" else gos.go(release)
    build = [go, "build", "-o", built, SOURCE.with_name("gowaits.go")]
    subprocess.run(build, check=True, env=environment, timeout=HANG)
    where = tmp_path / "run"
    where.mkdir()
    path = corekit.kernel_core(built, where, "-", "trace", "90", env={"GOTRACEBACK": "crash"})
    ours = shown_states(CoreFile(str(path)))
    theirs = {number: word.state for number, word in said((where / "trace").read_text()).items() if number}
    still = {number: state for number, state in theirs.items() if not state.startswith("run")}
    assert sum(", 1 minutes" in state for state in still.values()) >= 8
    assert "chan receive, 1 minutes, locked to thread" in still.values()
    assert "chan receive" in still.values()
    assert {number: ours[number] for number in still} == still


def test_a_panic_is_seen_from_the_handler_on(program: Program) -> None:
    """The thread that dies is in a signal handler, or on the runtime's own stack: the goroutine's frames follow."""
    path = core(program, "panic")
    target = CoreFile(str(path))
    names = [frame[0] for frame in as_crash_prints(target, alive(target)[1])]
    assert names[-4:] == ["main.die", "main.main", "runtime.main", "runtime.goexit"]
    assert "runtime.gopanic" in names


def test_threads_have_the_stacks_of_their_goroutines(program: Program) -> None:
    """findstack and triage: names, lines and frames of a stripped program are those of the runtime's own trace."""
    path = core(program, "panic")
    target = CoreFile(str(path))
    word = said(path.with_name("trace").read_text())[1]
    tables = answers.by_name(answers.answer(target, "findstack"))
    frames = []
    for frame in tables["threads"][0]["stack"]:
        if program.emulator and "source" not in frame:  # the kernel's code that handlers return to
            continue
        source, inner = frame["source"], frame.get("inlined", [])
        numbers = (int(frame["sp"], 16), int(frame["pc"], 16))
        for each in inner:
            frames.append((shown(each["name"]), each["source"]["file"] + f":{each['source']['line']}"))
        place = inner[-1]["called_from"] if inner else source
        name = re.sub(r"(\.abi0)?(\+0x[0-9a-f]+)?$", "", frame["name"])
        frames.append((shown(name), f"{place['file']}:{place['line']}", *numbers))
    assert tables["threads"][0]["end"] == "the outermost frame"
    first = next(place for place, frame in enumerate(word.frames) if frame[0] == "runtime.gopanic")
    assert frames[-len(word.frames) + first :] == word.frames[first:]
    finding = answers.by_name(answers.answer(target, "triage"))["findings"][0]
    assert "main.die" in finding["what"]
    assert "nil pointer dereference" in finding["what"]


def test_no_frame_of_a_thread_is_a_guess(program: Program) -> None:
    target = CoreFile(str(core(program, "raw")))
    rows = answers.by_name(answers.answer(target, "stacks"))["stacks"]
    assert rows
    for row in rows:
        assert row["end"] == "the outermost frame"
        assert {frame["found"] for frame in row["stack"]} <= {"thread", "cfi", "signal"}


def test_without_the_program_the_answer_is_an_error(program: Program, tmp_path: Path) -> None:
    """The kernel dumps neither code nor constants, so the function table is only in the program's file."""
    path = core(program, "raw")
    done = answers.dmods("goroutines", path, "--sysroot", tmp_path)
    assert done.returncode == 1
    assert "--exe" in done.stderr
    assert answers.dmods("goroutines", path, "--sysroot", tmp_path, "--exe", program.path).returncode == 0


def test_goroutines_with_one_stack_are_shown_once(program: Program) -> None:
    target = CoreFile(str(core(program, "raw")))
    tables = answers.by_name(answers.answer(target, "goroutines"))
    five = next(row for row in tables["stacks"] if row["count"] == 5)
    assert (five["state"], five["top"], five["made_by"]) == ("chan receive", "main.start.func1", "main.start")
    assert [frame["source"]["file"] for frame in five["stack"]] == [str(SOURCE)]
    assert sum(row["count"] for row in tables["stacks"]) == len(tables["goroutines"]) == len(alive(target))
    deep = answers.by_name(answers.answer(target, "goroutines", "-c", "main.descend", "-n", "20"))
    assert [row["truncated"] for row in deep["stacks"]] == [True]
    assert len(deep["stacks"][0]["stack"]) == 17  # and three of the runtime, which are not shown


@pytest.mark.parametrize("words", ["", "-a -l", "1", "-a 1", "-s select"])
def test_the_schema_and_the_text(program: Program, words: str) -> None:
    path = core(program, "raw")
    answer = json.loads(answers.printed("goroutines", path, *words.split(), "--json"))
    assert wrong(answer) == []
    text = answers.printed("goroutines", path, *words.split())
    for table in answer["tables"]:
        for row in table["rows"]:
            for frame in row.get("stack", []):
                assert frame["source"]["file"].rpartition("/")[2] in text


def test_gdb_and_drgn_say_the_same(program: Program) -> None:
    path = core(program, "raw")
    alone = json.loads(answers.printed("goroutines", path, "-a", "--json"))
    gdb = ["gdb", "-nx", "-q", "-batch", "-x", answers.ROOT / "heapcmds.py", path, "-ex", "echo [begin]"]
    in_gdb = answers.finished(*gdb, "-ex", "mdb goroutines -a --json").stdout.partition("[begin]")[2]
    drgn = [Path(sys.executable).with_name("drgn"), "-q", "-c", path, answers.ROOT / "drgnext" / "launcher.py"]
    in_drgn = answers.finished(*drgn, "goroutines", "-a", "--json").stdout
    assert json.loads(in_gdb)["tables"] == json.loads(in_drgn)["tables"] == alone["tables"]


def test_a_damaged_goroutine_leaves_the_others(program: Program, tmp_path: Path) -> None:
    path = core(program, "raw")
    whole = CoreFile(str(path))
    before = alive(whole)
    sends, selects = (next(one for one in before.values() if one.state == name) for name in ("chan send", "select"))
    damaged = tmp_path / "core"
    damaged.write_bytes(path.read_bytes())
    with open(damaged, "r+b") as file:
        for address, value in ((sends.address + 56, 0x1000), (selects.address, 1 << 60)):  # sched.sp, stack.lo
            file.seek(offset(whole, address))
            file.write(value.to_bytes(8, "little"))
    target = CoreFile(str(damaged))
    found = find_goroutines(target)
    after = {one.number: one for one in found.all if not one.dead}
    assert before.keys() - after.keys() <= {selects.number}
    assert stack_of(target, after[sends.number], LIMIT).frames == []
    assert "outside" in stack_of(target, after[sends.number], LIMIT).end
    for number in after.keys() - {sends.number, selects.number}:
        assert stack_of(target, after[number], LIMIT) == stack_of(whole, before[number], LIMIT)


def offset(target: CoreFile, address: int) -> int:
    load = next(one for one in target._loads if one.start <= address < one.end)
    return int(load.offset + address - load.start)
