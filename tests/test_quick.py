"""The quick run: it leaves out what is slow, and nothing else."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from fixtures import _cache, answers, debuggers, kernel, userlands

ROOT = Path(__file__).resolve().parents[1]
#: Files, below tests, in which every test needs another machine, another gdb or another build.
WHOLE_FILES = {
    "allocators/jemalloc/test_both.py",
    "allocators/mimalloc/test_commands.py",
    "allocators/mimalloc/test_crate.py",
    "allocators/mimalloc/test_damage.py",
    "allocators/mimalloc/test_gone.py",
    "allocators/mimalloc/test_oracle.py",
    "allocators/mimalloc/test_truth.py",
    "allocators/musl/test_damage.py",
    "allocators/musl/test_threads.py",
    "allocators/musl/test_truth.py",
    "allocators/pymalloc/test_pools.py",
    "allocators/tcmalloc/test_damage.py",
    "allocators/tcmalloc/test_stats.py",
    "allocators/test_growth.py",
    "allocators/test_linked_crates.py",
    "allocators/test_named.py",
    "allocators/test_several.py",
    "allocators/test_size_classes.py",
    "audit/test_heaptrack.py",
    "audit/test_mapper.py",
    "commands/test_growth_between.py",
    "drgn/test_oldest_drgn.py",
    "gdb/test_another_gdb.py",
    "graph/test_counted.py",
    "graph/test_lua_types.py",
    "graph/test_nginx_types.py",
    "graph/test_redis.py",
    "graph/test_redis_types.py",
    "graph/test_rust_states.py",
    "graph/test_rust_tails.py",
    "graph/test_rust_types.py",
    "kernel/test_arm64.py",
    "kernel/test_based_modules.py",
    "kernel/test_busy.py",
    "kernel/test_carried_dumps.py",
    "kernel/test_crash8.py",
    "kernel/test_loops.py",
    "kernel/test_mounted.py",
    "kernel/test_own_oracles.py",
    "kernel/test_own_symbols.py",
    "kernel/test_planted_slabs.py",
    "kernel/test_rare.py",
    "kernel/test_sentences.py",
    "kernel/test_triage_servers.py",
    "kernel/test_triage_troubles.py",
    "kernel/test_workqueues.py",
    "modules/test_rust_names.py",
    "profile/test_browser.py",
    "profile/test_differences.py",
    "profile/test_go.py",
    "profile/test_gperftools.py",
    "runtimes/golang/test_cgo.py",
    "runtimes/golang/test_goroutines.py",
    "runtimes/golang/test_growth.py",
    "runtimes/golang/test_heap.py",
    "runtimes/golang/test_server.py",
    "runtimes/golang/test_sweep.py",
    "runtimes/test_python.py",
    "test_installed.py",
    "triage/test_browser.py",
    "triage/test_hooks.py",
    "triage/test_planted.py",
    "triage/test_stdio.py",
}


@pytest.mark.thorough("it collects every test twice")
def test_every_file_has_quick_tests_and_what_is_left_out_is_told() -> None:
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    every, quick = (answers.finished(*collect, option, cwd=ROOT) for option in ("--all", "--quick"))
    tests, chosen = ({line for line in done.stdout.splitlines() if "::" in line} for done in (every, quick))
    assert chosen < tests, quick.stderr
    files, kept = ({test.partition("::")[0] for test in found} for found in (tests, chosen))
    assert files - kept == {f"tests/{name}" for name in WHOLE_FILES}
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
