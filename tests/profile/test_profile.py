"""Heap profiles, compared with what fixtures/userland/profiled.c knows of itself, and with pprof and jeprof."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Optional

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UsageError, UserError
from fixtures import answers, audited, cores, jemallocs
from fixtures.cores import CoreSet
from fixtures.limits import HANG

EXACT, SAMPLED = "prof:true,lg_prof_sample:0", "prof:true,lg_prof_sample:12"
OWN = "leaf|descend|inlined|never_returns"  # functions of the program that allocate themselves


class Row(NamedTuple):
    flat: int
    cum: int


@cache
def opened(core: str) -> CoreFile:
    return CoreFile(core)


def asked(made: CoreSet, *words: str) -> dict[str, Any]:
    whole = answers.answer(opened(str(made.core)), "profile", *words)
    return {**whole, "tables": answers.by_name(whole)}


def top(made: CoreSet, *words: str) -> dict[str, Row]:
    report = asked(made, "--top", "1000", *words)
    by = words[words.index("--by") + 1] if "--by" in words else "function"
    return {row[by]: Row(row["flat"], row["cum"]) for row in report["tables"]["top"]}


def written(made: CoreSet, where: Path, name: str, *words: str) -> Path:
    asked(made, "-o", str(where / name), *words)
    return where / name


def ledger(made: CoreSet) -> dict[str, Row]:
    """Return what the program said of each of its functions."""
    facts = made.truth.facts
    names = [name.split(" ", 1)[1] for name in facts if name.startswith("cum ")]
    return {name: Row(facts[f"flat {name}"], facts[f"cum {name}"]) for name in names}


def tool(*words: object) -> str:
    """Return what `go tool` prints."""
    done = subprocess.run(
        ["go", "tool", *map(str, words)], check=True, capture_output=True, text=True, timeout=HANG, cwd="/"
    )
    return done.stdout


def pprof(*words: object) -> dict[str, Row]:
    """Return the rows of `go tool pprof -top`, to the byte."""
    rows = {}
    for line in tool("pprof", "-top", "-nodecount=100000", "-nodefraction=0", "-unit=B", *words).splitlines():
        match = re.match(r"\s*(-?\d+)B?\s+\S+%\s+\S+%\s+(-?\d+)B?\s+\S+%\s+(.*?)(?: \((?:partial-)?inline\))?$", line)
        if match:
            rows[match[3]] = Row(int(match[1]), int(match[2]))
    return rows


def test_every_row_is_the_programs_own() -> None:
    """Recursion counts once in cum. A return address that is the first byte of the next function is not in it."""
    made = audited.take("profiled")
    rows, known = top(made), ledger(made)
    assert known["descend"].cum == known["descend"].flat > 0
    assert {name: rows.get(name) for name in known} == known
    assert "next_in_memory" not in rows
    counts = top(made, "--sample", "inuse_objects")
    assert all(counts[name].flat == made.truth.facts[f"count {name}"] for name in known)
    threads = top(made, "--by", "thread")
    (worker,) = [row for name, row in threads.items() if name.endswith("(worker)")]
    assert worker.flat == known["worker"].cum
    assert sum(row.flat for row in threads.values()) == sum(row.flat for row in rows.values())
    with pytest.raises(UsageError, match="frees were not counted"):
        top(made, "--sample", "alloc_space")


def test_callers_and_callees() -> None:
    made = audited.take("profiled")
    known = ledger(made)
    rows = asked(made, "peek", "^scene$")["tables"]["peek"]
    callees = {row["context"].strip(): row["calls"] for row in rows if row["role"] == "callee"}
    assert {row["context"].strip(): row["calls"] for row in rows if row["role"] == "caller"} == {
        "main": known["scene"].cum
    }
    for name in ("descend", "around", "calls_last", "frees"):
        assert callees[name] == known[name].cum
    assert sum(callees.values()) == known["scene"].cum
    tree = asked(made, "tree", "--top", "1000")["tables"]["tree"]
    own = {row["context"]: row["cum"] for row in tree if row["role"] == "function"}
    assert {name: own.get(name) for name in known} == {name: row.cum for name, row in known.items()}
    with pytest.raises(UsageError):
        asked(made, "peek")


def test_filters_and_groups() -> None:
    made = audited.take("profiled")
    known, whole = ledger(made), top(made)
    focused = top(made, "--focus", "^descend$")
    assert focused["main"] == Row(0, known["descend"].cum)
    assert "leaf" not in focused
    rest = top(made, "--ignore", "^descend$")
    assert rest["main"].cum == whole["main"].cum - known["descend"].cum
    files = top(made, "--by", "file")
    assert sum(row.flat for name, row in files.items() if name.endswith("profiled.c")) == sum(
        row.flat for row in known.values()
    )
    libraries = top(made, "--by", "library")
    assert libraries["profiled"].flat == sum(row.flat for row in known.values())


def test_text_of_the_dump_is_escaped(tmp_path: Path) -> None:
    """The picture of a hostile name: it stays text, in HTML and in SVG."""
    from dmods.profile import flame
    from dmods.profile.model import Line, Location, Profile, Sample
    from dmods.profile.view import View

    evil = "</script><script>alert(1)</script>\"'&\x1b[2J\u202e\ud800]]>"
    profile = Profile(locations=[Location(0, 0, (Line(evil, evil, evil),))], source=evil, notes=[evil])
    profile.samples.append(Sample((0,), (1, 10)))
    for text in ("".join(flame.html(View(profile))), "".join(flame.svg(View(profile)))):
        assert "alert(1)</script>" not in text
        assert text.count("<script>") == text.count("</script>") == 1
        assert not set("\x1b\u202e\ud800") & set(text)
    assert "default-src 'none'" in "".join(flame.html(View(profile)))


@pytest.mark.thorough("it finds the owners of a large heap")
def test_without_records_each_byte_has_one_stack_of_holders() -> None:
    """The sums are those of `owners`, whatever the tree."""
    made = cores.take("graph")
    totals = answers.answer(opened(str(made.core)), "owners")["totals"]
    held = asked(made, "--ignore", "^the allocator's own$")["totals"]["shown"]
    assert held == sum(totals[f"{how}_bytes"] for how in ("alone", "shared", "leaked"))
    leaked = asked(made, "--focus", "^leaked$")["totals"]["shown"]
    assert leaked == totals["leaked_bytes"] > 0
    with pytest.raises(UserError, match="no records"):
        asked(made, "--source", "auditor")


@pytest.mark.thorough("it runs go tool pprof")
@pytest.mark.parametrize("program", ["profiled", "wrapped", "callers"])
def test_pprof_reads_the_same_rows(program: str, tmp_path: Path) -> None:
    made = audited.take(program)
    file = written(made, tmp_path, "x.pb.gz")
    assert pprof(file) == {name: row for name, row in top(made).items() if row != (0, 0)}
    assert {name: row.flat for name, row in pprof("-sample_index=inuse_objects", file).items()} == {
        name: row.flat for name, row in top(made, "--sample", "inuse_objects").items()
    }
    for words in (("--focus", "main"), ("--ignore", "main")):
        assert pprof(*("-" + word.lstrip("-") if word.startswith("--") else word for word in words), file) == top(
            made, *words
        )


@pytest.mark.thorough("it runs go tool pprof")
def test_what_pprof_sees_in_the_file(tmp_path: Path) -> None:
    made = audited.take("profiled")
    known = ledger(made)
    raw = tool("pprof", "-raw", written(made, tmp_path, "x.pb.gz", "--details"))
    assert "inuse_objects/count inuse_space/bytes[dflt]" in raw
    assert "alloc_" not in raw.partition("Locations")[0]
    locations = raw.partition("Locations")[2]
    # Return addresses are written as pc - 1: the line is that of the call, not of what follows it.
    source = (Path(__file__).parents[2] / "fixtures/userland/profiled.c").read_text().splitlines()
    (line,) = set(re.findall(r"calls_last \S*profiled\.c:(\d+):", locations))
    assert "never_returns();" in source[int(line) - 1]
    # An inlined function is a line of its own, before its caller, at one address.
    inlined = re.search(r"M=\d+ inlined \S+:(\d+):0 s=0\n\s+around \S+:(\d+):0", locations)
    assert inlined is not None
    assert "malloc(size)" in source[int(inlined[1]) - 1]
    assert "inlined(4444)" in source[int(inlined[2]) - 1]
    mapping = raw.partition("Mappings\n")[2].splitlines()[0]
    build_id = subprocess.run(
        ["readelf", "-n", made.executable], check=True, capture_output=True, text=True
    ).stdout.partition("Build ID: ")[2]
    assert build_id.split()[0] in mapping
    assert mapping.endswith("[FN][FL][LN][IN]")
    samples = raw.partition("Samples:")[2].partition("Locations")[0]
    assert samples.count("state:[held]") == samples.count("type:[") == samples.count("owner:[")
    assert "thread:[" in samples
    assert "allocator:[malloc]" in samples
    tags = tool("pprof", "-top", "-unit=B", "-tagroot=thread", "-nodefraction=0", tmp_path / "x.pb.gz")
    (worker,) = [line for line in tags.splitlines() if line.endswith("(worker)")]
    assert worker.split()[3] == f"{known['worker'].cum}B"


@pytest.mark.thorough("it runs go tool pprof")
def test_a_difference_adds_up_to_the_byte(tmp_path: Path) -> None:
    old, new = audited.take("profiled"), audited.take("profiled", mode="more")
    before, after = ledger(old), ledger(new)
    for base in (str(old.core), str(written(old, tmp_path, "old.pb.gz"))):
        rows = top(new, "--base", base)
        for name, row in after.items():
            expected = Row(row.flat - before[name].flat, row.cum - before[name].cum)
            assert rows.get(name, Row(0, 0)) == expected
        now = written(new, tmp_path, "new.pb.gz")
        assert pprof("-diff_base", tmp_path / "old.pb.gz", now) == rows
        assert pprof(written(new, tmp_path, "diff.pb.gz", "--base", base)) == rows
    folded = written(new, tmp_path, "diff.folded", "--base", str(old.core)).read_text().splitlines()
    values = [tuple(map(int, line.rsplit(" ", 2)[1:])) for line in folded]
    assert sum(value[0] for value in values) == asked(old)["totals"]["total"]
    assert sum(value[1] for value in values) == asked(new)["totals"]["total"]
    scope = json.loads(written(new, tmp_path, "diff.speedscope.json", "--base", str(old.core)).read_text())
    sums = {one["name"]: sum(one["weights"]) for one in scope["profiles"]}
    assert (
        sums["inuse_space"] - sums["base"]
        == sums["grew"] - sums["shrank"]
        == rows["main"].cum + sum(row.flat for name, row in rows.items() if name not in after)
    )
    page = written(new, tmp_path, "diff.html", "--base", str(old.core)).read_text()
    assert "up4" in page
    assert "down4" in page
    with pytest.raises(UsageError, match="a difference cannot be a base"):
        top(new, "--base", str(tmp_path / "diff.pb.gz"))


@pytest.mark.thorough("it runs go tool pprof")
@pytest.mark.parametrize("mean", [64, 512, 4096])
def test_samples_are_scaled_once(mean: int, tmp_path: Path) -> None:
    """Each sample of s bytes stands for 1 / (1 - exp(-s / mean)) blocks: computed here from the raw stacks."""
    import math

    made = audited.take("profiled", f"audit,sample={mean}")
    exact = audited.take("profiled")
    rows = top(made)
    raw = tool("pprof", "-raw", written(made, tmp_path, "x.pb.gz"))
    (comment,) = re.findall(r"scaled from (\d+) samples of (\d+) bytes", raw)
    users = answers.answer(opened(str(made.core)), "umausers", "--by", "size", "--all")["tables"][0]["rows"]
    assert int(comment[0]) == sum(row["records"] for row in users)
    assert int(comment[1]) == sum(row["recorded_bytes"] for row in users)
    likely = sum(row["records"] * row["size"] / -math.expm1(-row["size"] / mean) for row in users)
    assert asked(made)["totals"]["total"] == pytest.approx(likely, abs=len(users) * 10)
    assert pprof(tmp_path / "x.pb.gz") == rows
    assert f"Period: {mean}" in raw
    # jeprof and google-pprof scale the text themselves: it holds what was sampled.
    text = written(made, tmp_path, "x.heap").read_text()
    assert re.match(rf"heap profile:\s+{comment[0]}:\s+{comment[1]} \[\s*0:\s*0\] @ heap_v2/{mean}\n", text)
    assert sum(ledger(exact)[name].flat for name in ledger(exact)) == pytest.approx(likely, rel=0.5)


# -- jemalloc --------------------------------------------------------------------------------------------------------


def heap_rows(text: str) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return (blocks, bytes) of each stack in jemalloc's text; () is the total."""
    rows, key = {}, ()
    for line in text.partition("MAPPED_LIBRARIES")[0].splitlines():
        if line.startswith("@"):
            key = tuple(line.split()[1:])
        match = re.match(r"\s+t\*: (\d+): (\d+) \[", line)
        if match:
            rows[key] = (int(match[1]), int(match[2]))
    return rows


@pytest.mark.thorough("it makes cores with jemalloc")
@pytest.mark.parametrize("conf", [EXACT, SAMPLED])
def test_jemallocs_own_dump_of_the_same_instant_has_the_same_rows(conf: str, tmp_path: Path) -> None:
    made = jemallocs.take("profiled", conf=conf)
    own = (made.workdir / "truth.heap").read_text()
    text = written(made, tmp_path, "x.heap").read_text()
    assert text.splitlines()[0] == own.splitlines()[0]
    assert heap_rows(text) == heap_rows(own)
    assert len(heap_rows(own)) > 5


def jeprof(program: Path, *words: object) -> dict[str, Row]:
    done = subprocess.run(
        ["jeprof", "--text", "--show_bytes", *map(str, words[:-1]), str(program), str(words[-1])],
        check=True,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    rows = {}
    for line in done.stdout.splitlines():
        match = re.match(r"\s*(\d+)\s+\S+%\s+\S+%\s+(\d+)\s+\S+%\s+(.*)", line)
        if match:
            rows[match[3]] = Row(int(match[1]), int(match[2]))
    return rows


@pytest.mark.thorough("it runs jeprof")
@pytest.mark.parametrize("conf", [EXACT, SAMPLED])
def test_jeprof_prints_the_same_rows_of_both_files(conf: str, tmp_path: Path) -> None:
    made = jemallocs.take("profiled", conf=conf)
    own = jeprof(made.executable, made.workdir / "truth.heap")
    assert own
    assert jeprof(made.executable, written(made, tmp_path, "x.heap")) == own
    rows = top(made)
    for name in ("leaf", "descend", "main", "scene"):
        if name in own:
            # jemalloc rounds what it writes to whole sampled blocks. The file of pprof has no such step.
            assert rows[name].cum == pytest.approx(own[name].cum, rel=0.02)


@pytest.mark.thorough("it runs jeprof")
def test_jeprof_reads_the_text_of_gperftools(tmp_path: Path) -> None:
    made = audited.take("profiled")
    rows, known = jeprof(made.executable, written(made, tmp_path, "x.heap")), ledger(made)
    for name in ("leaf", "other_leaf", "descend", "never_returns", "main", "worker", "frees"):
        if name in known:
            assert rows[name] == known[name]


@pytest.mark.thorough("it runs go tool pprof")
def test_the_reference_graph_in_pprof(tmp_path: Path) -> None:
    made = cores.take("graph")
    rows = pprof(written(made, tmp_path, "x.pb.gz"))
    assert rows == top(made)
    with pytest.raises(UsageError, match="no stacks of code"):
        written(made, tmp_path, "x.heap")


# -- hostile files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["text", "cut", "bomb", "flip", None])
def test_a_damaged_base_is_an_error_with_advice(damage: Optional[str], tmp_path: Path) -> None:
    import gzip

    made = audited.take("profiled")
    file = written(made, tmp_path, "x.pb.gz")
    data = file.read_bytes()
    if damage == "text":
        file.write_bytes(gzip.compress(b"no profile at all"))
    elif damage == "cut":
        file.write_bytes(data[: len(data) // 2])
    elif damage == "bomb":
        file.write_bytes(gzip.compress(b"\x12\x80\x80\x80\x80\x08" + b"\0" * 1000))
    elif damage == "flip":
        plain = bytearray(gzip.decompress(data))
        for place in range(0, len(plain), 7):
            plain[place] ^= 0x55
        file.write_bytes(gzip.compress(bytes(plain)))
    if damage is None:
        assert all(row == (0, 0) for row in top(made, "--base", str(file)).values())
    else:
        with pytest.raises(UserError, match="is not a profile"):
            top(made, "--base", str(file))
