"""Go's heap and goroutines on AArch64, compared with the program's own word. QEMU runs it and writes the core."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from fixtures import gos, userlands
from fixtures.limits import HANG
from tests.runtimes.golang import test_goroutines, test_heap
from tests.runtimes.golang.test_heap import Program

pytestmark = pytest.mark.seldom("it needs a userland with QEMU for AArch64")
RELEASES = ("host", "1.19.13", "1.24.13")


def built(release: str, flags: str, source: Path, where: Path) -> Path:
    environment = {key: value for key, value in os.environ.items() if key != "GOROOT"}
    environment.update(GOARCH="arm64", GO111MODULE="off", CGO_ENABLED="0", GOTOOLCHAIN="local")
    go = "go" if release == "host" else gos.go(release)
    build = [go, "build", f"-ldflags={flags}", "-o", where / source.stem, source]
    subprocess.run(build, check=True, env=environment, timeout=HANG)
    return where / source.stem


def emulator() -> Path:
    root = userlands.get("arm64-bookworm").root
    assert root is not None
    return root / "usr" / "bin" / userlands.EMULATOR


@pytest.fixture(scope="module", params=[(r, s) for r in RELEASES for s in ("", "-s -w")], ids="".join)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    release, flags = request.param
    where = tmp_path_factory.mktemp("arm64")
    path = built(release, flags, Path(__file__).with_name("goheap.go"), where)
    run = ["sh", "-c", 'ulimit -c unlimited; exec "$@"', "sh", emulator()]
    subprocess.run([*run, path, "truth", "stats"], cwd=where, check=False, timeout=HANG)
    return Program(next(where.glob("qemu_*.core")), bool(flags))


@pytest.fixture(scope="module", params=[(r, s) for r in RELEASES for s in ("", "-s -w")], ids="".join)
def stacks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> test_goroutines.Program:
    release, flags = request.param
    path = built(release, flags, test_goroutines.SOURCE, tmp_path_factory.mktemp("arm64stacks"))
    return test_goroutines.Program(path, release, emulator())


def test_the_heap_is_that_of_the_runtime(program: Program) -> None:
    heap = find_heap(CoreFile(str(program.core)))
    assert heap.target.arch.name == "aarch64"
    test_heap.test_objects_in_use_are_those_of_the_runtime(program, heap)
    test_heap.test_every_object_is_a_block(program, heap)


def test_garbage_is_no_leak(program: Program) -> None:
    test_heap.test_findleaks_calls_garbage_no_leak(program)


def test_types(program: Program) -> None:
    test_heap.test_no_type_is_wrong(program)
    test_heap.test_the_histogram_counts_them(program)


def test_every_stack_is_what_the_runtime_says(stacks: test_goroutines.Program) -> None:
    test_goroutines.test_every_stack_is_what_the_runtime_says(stacks)
    test_goroutines.test_no_frame_of_a_thread_is_a_guess(stacks)


@pytest.mark.parametrize("how", ["abort", "panic"])
def test_every_frame_is_where_the_runtime_says(stacks: test_goroutines.Program, how: str) -> None:
    test_goroutines.test_every_frame_is_where_the_runtime_says(stacks, how)


def test_stacks_say_what_the_trace_says_in_brackets(stacks: test_goroutines.Program) -> None:
    test_goroutines.test_stacks_say_what_the_trace_says_in_brackets(stacks)


def test_a_panic_is_seen_from_the_handler_on(stacks: test_goroutines.Program) -> None:
    test_goroutines.test_a_panic_is_seen_from_the_handler_on(stacks)
    test_goroutines.test_threads_have_the_stacks_of_their_goroutines(stacks)
