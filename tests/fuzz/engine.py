"""``scripts/fuzz-engine``: run libFuzzer on every parser of the engine, one process at a time.

The corpora lie in ``.cache/fuzz``, with a ledger of what every run did. ``--record`` writes those counts into
docs/FUZZING.md. An input that breaks a target goes to engine/core/tests/regressions, where ``cargo test`` replays it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

from fixtures._cache import CACHE, ROOT
from tests.fuzz import record, seeds

CRATE = ROOT / "engine" / "fuzz"
REGRESSIONS = ROOT / "engine" / "core" / "tests" / "regressions"
TRIPLE = "x86_64-unknown-linux-gnu"
#: The flags that cargo-fuzz passes on a stable compiler: edge counters, their places, and comparisons; no sanitizer.
COVERAGE = (
    "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
)
COMPARES = " -Cllvm-args=-sanitizer-coverage-trace-compares"
#: Target -> (its share of the time, longest input). The fast ones come first.
TARGETS = {
    "symbols": (1, 4096),
    "instruction": (1, 32),
    "demangle": (1, 128),
    "pagetables": (1, 256),
    "audit": (2, 1024),
    "pprof": (2, 1024),
    "memmap": (2, 2048),
    "slabs": (2, 2048),
    "kallsyms": (1, 2048),
    "shape": (2, 64),
    "btf": (2, 1024),
    "jemalloc": (2, 2048),
    "tcmalloc": (2, 4096),
    "musl": (2, 2048),
    "mimalloc": (2, 512),
    "pymalloc": (2, 1024),
    "golang": (2, 1024),
    "kdump": (2, 1024),
    "section": (2, 4096),
    "unpack": (2, 4096),
    "lines": (2, 4096),
    "search": (2, 2048),
    "dominators": (2, 256),
    "contents": (4, 2048),
    "heap": (4, 2048),
    "unwinding": (4, 8192),
}
MEMORY = 512  # MiB that a target may take
SECONDS = 10  # that one input may take
#: glibc maps and unmaps every large buffer anew. The heaps' targets are two to three times as fast if it keeps them.
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz-engine", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (all)")
    parser.add_argument("--minutes", type=float, default=10, help="in all (10)")
    parser.add_argument("--executions", type=int, default=0, metavar="N", help="of each target, then end")
    parser.add_argument(
        "--no-trace-compares",
        action="store_true",
        help="twice as fast, with fewer hints of what to try (as cargo-fuzz's)",
    )
    parser.add_argument("--record", action="store_true", help="write the counts so far into docs/FUZZING.md and end")
    args = parser.parse_args()
    if args.record:
        record.write()
        return 0
    programs = build(not args.no_trace_compares)
    wanted = dict.fromkeys(args.targets or TARGETS, args.executions or sys.maxsize)
    broke: set[str] = set()
    deadline = time.monotonic() + 60 * args.minutes
    slot = max(5.0, min(120.0, 60 * args.minutes / sum(TARGETS[name][0] for name in wanted)))
    while wanted and (left := deadline - time.monotonic()) > 1:
        for name in list(wanted):
            share, longest = TARGETS[name]
            ran = fuzz(programs / name, longest, min(max(left, 1), share * slot), wanted[name])
            wanted[name] -= ran.executions
            if ran.broke or wanted[name] <= 0:
                del wanted[name]
            broke |= {name} if ran.broke else set()
            left = deadline - time.monotonic()
    return 1 if broke else 0


def build(compares: bool) -> Path:
    """Build the targets. Return the folder of their programs."""
    command = ["cargo", "build", "--quiet", "--release", "--locked", f"--target={TRIPLE}"]
    environment = {**os.environ, "RUSTFLAGS": COVERAGE + (COMPARES if compares else "")}
    subprocess.run(command, cwd=CRATE, env=environment, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", CRATE / "target")) / TRIPLE / "release"


@cache
def sown(name: str) -> Path:
    """Return the corpus of a target, with the seeds of today: an old corpus lacks those of newer structures."""
    corpus = CACHE / "fuzz" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds.of(name)):
        (corpus / f"seed-{number}").write_bytes(seed)
    return corpus


def fuzz(program: Path, longest: int, seconds: float, most: int) -> record.Run:
    """Run one target for that long, or for ``most`` executions. The ledger gets what it did."""
    name = program.name
    corpus = sown(name)
    kept = REGRESSIONS / name
    argv = [
        *("nice", "-n", "19", str(program), str(corpus)),
        *([str(kept)] if kept.is_dir() else []),
        f"-max_total_time={max(1, int(seconds))}",
        f"-runs={min(most, (1 << 31) - 1)}",
        f"-max_len={longest}",
        f"-rss_limit_mb={MEMORY}",
        f"-timeout={SECONDS}",
        "-print_final_stats=1",
        f"-artifact_prefix={CACHE / 'fuzz'}/{name}-",
    ]
    began = time.monotonic()
    environment = {**os.environ, **KEPT}
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False, env=environment)
    executions, peak = _stat(done.stderr, "number_of_executed_units"), _stat(done.stderr, "peak_rss_mb")
    ran = record.add(name, time.monotonic() - began, executions, peak, done.returncode != 0)
    said = "BROKE" if ran.broke else "nothing broke"
    print(f"{name}: {ran.executions} executions in {ran.seconds:g} s, {ran.peak_mb} MiB, {said}", flush=True)
    if ran.broke:
        print(done.stderr[-4000:], flush=True)
    return ran


def _stat(text: str, name: str) -> int:
    found = re.search(rf"stat::{name}:\s+(\d+)", text)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    sys.exit(main())
