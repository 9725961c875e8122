"""``scripts/fuzz-engine``: libFuzzer on every parser of the engine, one process at a time, counted honestly.

The corpora lie in ``.cache/fuzz``, and beside them what every run did; ``--record`` writes those counts into
docs/FUZZING.md. An input that breaks a target goes to engine/core/tests/regressions, where ``cargo test`` replays it.
"""

from __future__ import annotations

import argparse
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from fixtures._cache import CACHE, ROOT
from tests.fuzz import record

CRATE = ROOT / "engine" / "fuzz"
REGRESSIONS = ROOT / "engine" / "core" / "tests" / "regressions"
TRIPLE = "x86_64-unknown-linux-gnu"
#: What cargo-fuzz passes on a stable compiler: edge counters, their places, comparisons; no sanitizer.
COVERAGE = (
    "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table "
    "-Cllvm-args=-sanitizer-coverage-trace-compares"
)
#: Target -> (its share of the time, longest input).
TARGETS = {
    "heap": (5, 8192),
    "search": (3, 8192),
    "unwinding": (4, 16384),
    "symbols": (4, 16384),
    "section": (1, 16384),
    "instruction": (1, 64),
    "demangle": (1, 512),
}
MEMORY = 512  # MiB that a target may take
SECONDS = 10  # that one input may take


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz-engine", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (all)")
    parser.add_argument("--minutes", type=float, default=10, help="in all (10)")
    parser.add_argument("--record", action="store_true", help="write the counts so far into docs/FUZZING.md and end")
    args = parser.parse_args()
    if args.record:
        record.write()
        return 0
    programs = build()
    broke = False
    deadline = time.monotonic() + 60 * args.minutes
    shares = {name: TARGETS[name] for name in args.targets or TARGETS}
    slot = max(5.0, min(120.0, 60 * args.minutes / sum(share for share, _ in shares.values())))
    while time.monotonic() < deadline:
        for name, (share, longest) in shares.items():
            left = deadline - time.monotonic()
            if left > 1:
                broke |= fuzz(programs / name, longest, min(left, share * slot)).broke
    return 1 if broke else 0


def build() -> Path:
    """The folder of the targets' programs."""
    command = ["cargo", "build", "--quiet", "--release", "--locked", f"--target={TRIPLE}"]
    subprocess.run(command, cwd=CRATE, env={**os.environ, "RUSTFLAGS": COVERAGE}, check=True)
    return CRATE / "target" / TRIPLE / "release"


def fuzz(program: Path, longest: int, seconds: float) -> record.Run:
    """Runs one target for that long; what it did is added to the ledger."""
    name = program.name
    corpus = CACHE / "fuzz" / name
    if not corpus.exists():
        corpus.mkdir(parents=True)
        for number, seed in enumerate(seeds(name)):
            (corpus / f"seed-{number}").write_bytes(seed)
    kept = REGRESSIONS / name
    argv = [
        *("nice", "-n", "19", str(program), str(corpus)),
        *([str(kept)] if kept.is_dir() else []),
        f"-max_total_time={max(1, int(seconds))}",
        f"-max_len={longest}",
        f"-rss_limit_mb={MEMORY}",
        f"-timeout={SECONDS}",
        "-print_final_stats=1",
        f"-artifact_prefix={CACHE / 'fuzz'}/{name}-",
    ]
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
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


# -- where to begin --------------------------------------------------------------------------------------------------


def seeds(name: str) -> Iterator[bytes]:
    """Inputs that get past the first checks; see engine/fuzz/src/targets.rs for how they are read."""
    if name in ("symbols", "section", "unwinding"):
        for elf in _objects():
            yield from _stacks(elf) if name == "unwinding" else [elf]
    elif name in ("heap", "search"):
        yield from (_heap(word) if name == "heap" else _searched(word) for word in (4, 8))
    elif name == "demangle":
        yield from (
            b"_ZNSt6vectorIiSaIiEE9push_backEOi",
            b"_RNvNtCs1234_7mycrate3foo3bar",
            b"_ZN4core3fmt5write17h0123E",
        )
    else:
        yield b"\0\1\1\0\0\x48\x8b\x44\x24\x08\xc3"


def _objects() -> Iterator[bytes]:
    source = "__thread int t; int data = 3; int f(int n) { return n ? n * f(n - 1) : data; } int g(void) { return t; }"
    for flags in (["-shared"], ["-shared", "-g", "-gz"], ["-c"]):
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "made"
            argv = [
                "gcc",
                "-O1",
                "-fPIC",
                "-nostdlib",
                "-fasynchronous-unwind-tables",
                "-Wl,-z,noseparate-code",
                *flags,
            ]
            subprocess.run([*argv, "-x", "c", "-", "-o", str(made)], input=source.encode(), check=True)
            yield made.read_bytes()


def _address(place: int, offset: int) -> bytes:
    return struct.pack("<BH", place, offset)


def _stacks(elf: bytes) -> Iterator[bytes]:
    for machine in range(3):
        for pc in range(0x200, 0x400, 0x40):
            registers = b"".join(b"\1\1" + _address(1, pc if n in (16, 32, 8) else 0x8010) for n in range(33))
            yield bytes([machine]) + registers + b"\1\0\0\0" + bytes(512) + elf


def _chunks(word: int) -> bytes:
    """Some chunks in use, one free, a list of two, top."""
    sizes = [0x21, 0x31, 0x21, 0x41, 0x20, 0x21, 0x21, 0x91]
    out = b""
    for size in sizes:
        body = bytearray(size & ~7)
        body[word : 2 * word] = size.to_bytes(word, "little")
        body[2 * word : 3 * word] = (0x20 + len(out)).to_bytes(2, "little") + bytes(word - 4) + b"\1\xad"
        out += body
    return out


def _memory(word: int) -> bytes:
    data = _chunks(word)
    return b"\0" + _address(1, 0) + struct.pack("<HH", 0, len(data)) + data


def _heap(word: int) -> bytes:
    run = _address(1, 0) + b"\0" + struct.pack("<H", 0x180) + b"\0\0\0"
    heads = b"".join(b"\1" + _address(1, 0x10 * n) for n in range(4))
    ranges = b"".join(_address(1, n) for n in (0, 0x40, 0x50, 0, 0))
    return bytes([1 if word == 8 else 0, 0]) + run + heads + struct.pack("<HH", 2, 6) + b"\3" + ranges + _memory(word)


def _searched(word: int) -> bytes:
    words = b"".join(b"\1" + _address(1, n) for n in (0x100, 0, 0x400))
    return bytes([1 if word == 8 else 0, 0]) + words + _memory(word)


if __name__ == "__main__":
    sys.exit(main())
