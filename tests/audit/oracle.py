"""Compare the stacks that the auditor records in real programs with libgcc's _Unwind_Backtrace: scripts/stacks-oracle.

The comparison runs inside the programs, in a build of the auditor with check.c. A program runs again until enough
stacks were compared. It fails if one differs, and prints both. tests/audit/test_stacks.py runs a part of this.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from fixtures import _cache, cores, software
from tests.audit.auditor import built, compiled, environment

PYTHON = """
import collections, json, re, sys, threading

def work(count):
    for n in range(count):
        table = {str(i): [i, i / 3, "text %d" % i] for i in range(300)}
        tree = json.loads(json.dumps(table))
        queue = collections.deque(sorted(re.findall("[a-z]+ [0-9]+", json.dumps(tree)), key=lambda text: text[::-1]))
        try:
            queue.remove("nothing")
        except ValueError as error:
            tree[str(error)] = queue

threads = [threading.Thread(target=work, args=(int(sys.argv[1]),)) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


class Compared(NamedTuple):
    """The number of stacks that were compared, the number that differ from libgcc's, and the program's output."""

    stacks: int
    different: int
    said: str


class Differed(AssertionError):
    """A stack differs from libgcc's, or a program failed. The text is what the program printed."""


def checking(output: Path, *flags: str) -> Path:
    """Return a build of the auditor that compares its stacks."""
    return built(output, "-DDMODS_AUDIT_CHECK", *flags, "tests/audit/check.c", "-lgcc_s")


def checked(
    folder: Path, library: Path, words: str, command: Sequence[object], status: int = 0, **more: str
) -> Compared:
    """Run a program to its end. Return what was compared."""
    told = folder / "check"
    told.unlink(missing_ok=True)
    variables = environment(words, library, DMODS_CHECK=str(told), **more)
    argv = [str(word) for word in command]
    done = subprocess.run(
        argv, env=variables, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != status:
        raise Differed(f"{argv[0]} ended with status {done.returncode}: {done.stderr[-2000:]}")
    return _result(told, done.stderr)


def _result(told: Path, said: str) -> Compared:
    """Return the sum of the lines that the processes of a program wrote."""
    lines = [tuple(map(int, line.split())) for line in told.read_text().splitlines()]
    return Compared(sum(line[0] for line in lines), sum(line[1] for line in lines), said)


def redis(folder: Path, library: Path, words: str, stacks: int) -> Compared:
    """Run a redis server under a load of many kinds of commands."""
    told = folder / "check"
    told.unlink(missing_ok=True)
    variables = environment(words, library, DMODS_CHECK=str(told))
    variables["LD_PRELOAD"] += " libc.so.6"  # glibc's malloc instead of the one that Debian's redis links
    tool = _cache.tool("redis-benchmark", "redis-tools")
    load = [tool, "-s", "redis.sock", "-q", "-n", str(max(1000, stacks // 40)), "-r", "100000", "-d", "64", "-P", "16"]
    with software.redis(folder, variables) as server:
        tests = ["-t", "set,lpush,hset,sadd,zadd,lrange_100"]
        subprocess.run([*load, *tests], cwd=folder, check=True, capture_output=True)
        argv = [_cache.tool("redis-cli", "redis-tools"), "-s", "redis.sock", "shutdown", "nosave"]
        subprocess.run(argv, cwd=folder, check=False, capture_output=True)
        if server.wait(software.START_SECONDS) != 0:
            raise Differed(f"redis-server ended with status {server.returncode}")
    return _result(told, (folder / "errors").read_text())


def python(folder: Path, library: Path, words: str, stacks: int) -> Compared:
    """Run Debian's Python in three threads. Every object is a malloc."""
    command = ["/usr/bin/python3", "-c", PYTHON, max(1, stacks // 30000)]
    return checked(folder, library, words, command, PYTHONMALLOC="malloc")


def gdb(folder: Path, library: Path, words: str, _stacks: int) -> Compared:
    """Run gdb: 12 MB of C++ that reads symbols in several threads and throws an exception for each error."""
    command = [_cache.tool("gdb"), "-nx", "-batch", "-iex", "set debuginfod enabled off", str(cores.build("cxx"))]
    wrong = [f"print nothing_{n}" for n in range(50)]
    for line in ("info functions alloc", "info types .", "break main", "info scope main", *wrong):
        command += ["-ex", line]
    return checked(folder, library, words, command, status=1)  # the last command failed


def exceptions(folder: Path, library: Path, words: str, _stacks: int) -> Compared:
    """Run twisted.cc: exceptions through many frames on several threads, and other stacks that are hard to walk."""
    program = folder / "twisted"
    if not program.exists():
        compiled("twisted.cc", program)
    return checked(folder, library, words, [program])


PROGRAMS: dict[str, Callable[[Path, Path, str, int], Compared]] = {
    "redis": redis,
    "python": python,
    "gdb": gdb,
    "exceptions": exceptions,
}


def compare(name: str, folder: Path, library: Path, words: str, stacks: int) -> Compared:
    """Run one of PROGRAMS until so many stacks were compared. Raises Differed if one differs."""
    done = 0
    while done < stacks:
        found = PROGRAMS[name](folder, library, words, stacks - done)
        if found.different or not found.stacks:
            different = f"{found.different} of {found.stacks} stacks differ from libgcc's"
            raise Differed(f"{name}: {different}: {found.said[-3000:]}")
        done += found.stacks
    return Compared(done, 0, "")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Return 0 where no stack differs, else 1."""
    parser = argparse.ArgumentParser(prog="scripts/stacks-oracle", description=__doc__)
    parser.add_argument("--stacks", type=int, default=1_000_000, help="of each program (default 1000000)")
    parser.add_argument("--program", action="append", choices=list(PROGRAMS), help="only this one; may be repeated")
    parser.add_argument("--words", default="audit", help="DMODS_AUDIT (default audit: 64 frames)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="dmods-stacks-") as folder:
        library = checking(Path(folder) / "check.so")
        failed = [_failed(*each) for each in _runs(options, Path(folder), library)]  # every program runs
        return int(any(failed))


def _runs(options: argparse.Namespace, folder: Path, library: Path) -> Iterator[tuple[str, Path, Path, str, int]]:
    for name in options.program or PROGRAMS:
        own = folder / name
        own.mkdir()
        yield name, own, library, options.words, options.stacks


def _failed(name: str, folder: Path, library: Path, words: str, stacks: int) -> bool:
    """Run one program and print its result. Return whether a stack differed."""
    begun = time.monotonic()
    try:
        found = compare(name, folder, library, words, stacks)
    except Differed as error:
        print(f"{name}: {error}", flush=True)
        return True
    print(f"{name}: {found.stacks} stacks compared, 0 differed ({time.monotonic() - begun:.0f} s)", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
