"""The truth about the 24 containers of tests/graph/ledger.c, beside the lines of ``owners``.

By hand::

    .venv/bin/python -m tests.graph.ledger ELEMENTS STACK HEAP REUSED [--flags "-O2 -s"] [--preload LIBRARY]

prints a line for each container that is not right: bytes that others have, and bytes of others that it has.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from dmods.corefile.target import CoreFile
from dmods.graph.owners.heap_owners import Line, Owners, find_owners
from tests.corekit import HERE, kernel_core

SOURCE = HERE / "graph" / "ledger.c"
BESIDE = [HERE / "graph" / name for name in ("ledger_lists.h", "ledger_trees.h")]
CONTAINERS = 24


@dataclass
class Container:
    """A container of the program. ``found``: where the bytes of its blocks are, by the name of the line."""

    name: str
    address: int
    size: int
    blocks: dict[int, int] = field(default_factory=dict)  # address -> usable bytes
    found: Counter[str] = field(default_factory=Counter)
    foreign: int = 0  # bytes that its lines have, and that are not its own

    @property
    def lost(self) -> int:
        return sum(self.found.values()) - self.found[self.name]

    @property
    def right(self) -> bool:
        return not self.lost and not self.foreign

    def owns(self, line: Line) -> bool:
        """Return whether only words of the variable hold the line. A stripped program has a root for each word."""
        at = [root.address for root in line.roots]
        return bool(at) and all(each is not None and self.address <= each < self.address + self.size for each in at)


@dataclass
class Ledger:
    containers: list[Container]
    words: int  # left over in blocks

    @property
    def wrong(self) -> list[Container]:
        return [each for each in self.containers if not each.right]

    @property
    def share(self) -> float:
        """Return which part of the bytes of all containers has the right owner."""
        total = sum(sum(each.blocks.values()) for each in self.containers)
        return sum(each.found[each.name] for each in self.containers) / total

    def __str__(self) -> str:
        right = f"{CONTAINERS - len(self.wrong)} of {CONTAINERS} right, with {self.share:.2%} of all bytes"
        rows = [f"{right}; {self.words} words are left over in blocks"]
        rows += [f"{each.name:10} has {each.foreign:9} bytes of others; {_where(each)}" for each in self.wrong]
        return "\n".join(rows)


def _where(container: Container) -> str:
    total = sum(container.blocks.values())
    others = [(name, size) for name, size in container.found.most_common() if name != container.name]
    return f"of its {total} are elsewhere: " + ("; ".join(f"{size} {name}" for name, size in others[:3]) or "none")


def read_truth(where: Path) -> Ledger:
    """Return what the program wrote in the folder."""
    first, *variables = (where / "truth").read_text().splitlines()
    made = {name: Container(name, int(at, 16), int(size)) for name, at, size in map(str.split, variables)}
    assert len(made) == CONTAINERS
    for line in (where / "blocks").read_text().splitlines():
        name, at, size = line.split()
        made[name].blocks[int(at, 16)] = int(size)
    return Ledger(list(made.values()), int(first.split()[1]))


def judged(where: Path, target: CoreFile) -> Ledger:
    """Return the program's truth, with the lines of ``owners`` in which each container's blocks are."""
    ledger, owners = read_truth(where), find_owners(target)
    sets = dict(_sets(owners))
    for each in ledger.containers:
        for address, size in each.blocks.items():
            line = sets.get(address)
            name = line.name if line is not None else "in no line"
            each.found[each.name if line is not None and each.owns(line) else name] += size
        held = sum(line.bytes for line in owners.lines if each.owns(line))
        each.foreign = held - each.found[each.name]
    return ledger


def _sets(owners: Owners) -> Iterator[tuple[int, Line]]:
    for line in owners.lines:
        if line.set is not None:
            for address in owners.addresses(("set", line.set)):
                yield address, line


def compiled(where: Path, *flags: str) -> Path:
    program = where / "ledger"
    subprocess.run(["gcc", "-g", *flags, str(SOURCE), "-o", str(program)], check=True)
    return program


def dumped(where: Path, numbers: Sequence[int], flags: Sequence[str] = ("-O2",), preload: str = "") -> Ledger:
    """Compile the program, let it die in the folder, and compare.

    ``numbers`` are the elements of each container, the words on the stack and in blocks, and the blocks that are used
    again.
    """
    env = {"LD_PRELOAD": preload} if preload else None
    core = kernel_core(compiled(where, *flags), where, *map(str, numbers), env=env)
    return judged(where, CoreFile(str(core)))


def main(words: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description="Compare owners with tests/graph/ledger.c.")
    parser.add_argument("numbers", nargs=4, type=int, metavar="N", help="ELEMENTS STACK HEAP REUSED")
    parser.add_argument("--flags", default="-O2", help="of gcc")
    parser.add_argument("--preload", default="", help="the path of a malloc")
    args = parser.parse_args(words)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        print(dumped(Path(folder), args.numbers, args.flags.split(), args.preload))


if __name__ == "__main__":
    main()
