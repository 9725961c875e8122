"""heaptrack (KDE's heap profiler) and the auditor on the same program: who holds what at the end."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from fixtures import _cache
from fixtures.answers import dmods
from fixtures.limits import HANG
from tests.audit.auditor import HERE, compiled

pytestmark = pytest.mark.thorough("it runs heaptrack")


def stacks(lines: list[str], source: str) -> Counter[tuple[str, ...]]:
    """Return the bytes of each stack from main on. heaptrack writes "main (leaves.c);holder (leaves.c); 100"."""
    found: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        text, _, size = line.rpartition(" ")
        names = [name.removesuffix(f" ({source})") for name in text.rstrip(";").split(";")]
        if "main" in names and int(size) > 0:
            found[tuple(names[names.index("main") :])] += int(size)
    return found


@pytest.mark.parametrize("way", ["return", "fork"])
def test_what_leaks_at_the_end_is_the_same(tmp_path: Path, way: str) -> None:
    """Each stack from main on holds the same bytes, to the byte, and both agree with the program's own ledger."""
    program = compiled("leaves.c", tmp_path / "leaves", "-O1")
    tool = _cache.tool("heaptrack", "heaptrack")
    output = tmp_path / "track"
    subprocess.run(
        [tool, "-o", output, program, way, tmp_path / "told"], check=False, capture_output=True, timeout=HANG
    )
    (tracked,) = tmp_path.glob("track*")
    printer = [_cache.tool("heaptrack_print", "heaptrack"), "-f", tracked, "-F", tmp_path / "cost"]
    subprocess.run([*printer, "--flamegraph-cost-type", "leaked"], check=True, capture_output=True, timeout=HANG)
    theirs = stacks((tmp_path / "cost").read_text().splitlines(), (HERE / "leaves.c").name)
    words = ("run", "--profile-at-exit", tmp_path / "x.folded", "--", program, way, tmp_path / "told")
    assert dmods(*words).returncode == 3
    ours = stacks((tmp_path / "x.folded").read_text().splitlines(), "")
    holders = {stack for stack in ours if stack[-1].endswith("_holder")}
    assert holders == {("main", "small_holder"), ("main", "large_holder")}
    assert {stack: ours[stack] for stack in holders} == {
        stack: size for stack, size in theirs.items() if stack[-1].endswith("_holder")
    }
    told = dict(line.split() for line in (tmp_path / "told").read_text().splitlines())
    assert {stack[-1]: str(ours[stack]) for stack in holders} == told
