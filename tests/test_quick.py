"""The quick run: it leaves out what is slow, and nothing else."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from fixtures import _cache, answers, debuggers, kernel, userlands

ROOT = Path(__file__).resolve().parents[1]
#: Files in which every test needs another machine, another gdb or another build.
WHOLE_FILES = {"test_installed.py", "test_another_gdb.py", "test_arm64.py", "test_both.py", "test_oldest_drgn.py"}
WHOLE_FILES |= {"test_busy.py", "test_planted_slabs.py", "test_rust_types.py"}
WHOLE_FILES |= {"test_rust_tails.py", "test_rust_states.py"}
WHOLE_FILES |= {"test_gperftools.py", "test_go.py", "test_browser.py", "test_heaptrack.py", "test_mapper.py"}
WHOLE_FILES |= {"test_counted.py", "test_redis_types.py", "test_lua_types.py", "test_planted.py", "test_triage.py"}
WHOLE_FILES |= {"test_sentences.py", "test_triage_troubles.py", "test_size_classes.py"}
WHOLE_FILES |= {"test_cgo.py", "test_crate.py", "test_differences.py"}
WHOLE_FILES |= {"test_growth_between.py", "test_gone.py", "test_server.py", "test_named.py", "test_sweep.py"}
WHOLE_FILES |= {"test_goroutines.py", "test_hooks.py", "test_linked_crates.py", "test_oracle.py", "test_pools.py"}
WHOLE_FILES |= {"test_heap.py", "test_python.py", "test_stdio.py", "test_triage_servers.py"}
WHOLE_FILES |= {
    "test_inside.py",
    "test_rust_names.py",
    "test_several.py",
    "test_crash8.py",
    "test_own_oracles.py",
    "test_carried_dumps.py",
    "test_nginx_types.py",
    "test_own_symbols.py",
}


@pytest.mark.thorough("it collects every test twice")
def test_every_file_has_quick_tests_and_what_is_left_out_is_told() -> None:
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    every, quick = (answers.finished(*collect, option, cwd=ROOT) for option in ("--all", "--quick"))
    tests, chosen = ({line for line in done.stdout.splitlines() if "::" in line} for done in (every, quick))
    assert chosen < tests, quick.stderr
    files, kept = ({Path(test.partition("::")[0]).name for test in found} for found in (tests, chosen))
    assert files - kept == WHOLE_FILES
    count = len(tests) - len(chosen)
    assert f"{count} tests run only with --all" in quick.stdout
    # Tests that neither run takes (`seldom`) are deselected, too.
    assert int(re.findall(r"\((\d+) deselected\)", quick.stdout)[0]) >= count
    foreign = re.compile(r"[\[-](bullseye|trixie|sid|arm64-bookworm|i386-bookworm|6\.12|5\.10|6\.1-arm64)[\]-]")
    assert [test for test in chosen if foreign.search(test)] == []
    moving = answers.finished(*collect, "--quick", "-m", "moving", cwd=ROOT)
    assert [line for line in moving.stdout.splitlines() if "::" in line] == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: userlands.get("i386-sid"),
        lambda: kernel.guest("5.10"),
        lambda: kernel.guest("6.1", crash="hardirq"),
        lambda: debuggers.gdb("forky"),
    ],
    ids=["userland", "kernel", "crash", "gdb"],
)
def test_a_quick_test_cannot_make_what_takes_long(make: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(make)
    monkeypatch.setenv(_cache.QUICK, "1")
    with pytest.raises(RuntimeError, match="is not for the quick tests: mark the test `thorough`"):
        make()
