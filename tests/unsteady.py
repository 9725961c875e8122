"""Count the runs in a row in which a test needed a second try, for scripts/test.

    python -m tests.unsteady FILE.passed TEST...

The tests are those that failed and passed in the second try. FILE.passed has those that passed in the first
(tests/again.py). The command names the unsteady tests in its last line. It fails if a test was unsteady in three runs
in a row, unless tests/unsteady.txt gives the test a grace. Quick runs and runs with --all count alike. The counts are
in the user's cache folder, so that a fresh clone goes on with them.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

#: A test that is unsteady in so many runs in a row fails the gate.
TOO_OFTEN = 3
#: So many tests are remembered: those that were unsteady last.
MOST = 500

#: The graces: "TEST # CAUSE", a line each.
LIST = Path(__file__).with_name("unsteady.txt")


def graces(path: Path = LIST) -> dict[str, str]:
    """Return the causes of the tests that may be unsteady for longer. A line without a cause is an error."""
    found = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            test, _, cause = (part.strip() for part in line.partition(" # "))
            if not cause:
                raise ValueError(f"{path.name}, line {number}: the test has no cause. Write `TEST # CAUSE`.")
            found[test] = cause
    return found


def folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dmods-tests"


def counted(where: Path, passed: Iterable[str], unsteady: Sequence[str]) -> dict[str, int]:
    """Count one more run for each unsteady test and forget the others that passed. Return the counts, and keep them."""
    where.mkdir(parents=True, exist_ok=True)
    kept = where / "unsteady"
    with open(where / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may end at the same time
        counts = {name: count for name, count in read(kept).items() if name not in set(passed)}
        for name in unsteady:
            counts[name] = counts.pop(name, 0) + 1  # at the end: the oldest are forgotten first
        lines = [f"{count} {name}\n" for name, count in counts.items()][-MOST:]
        with tempfile.NamedTemporaryFile("w", dir=where, delete=False) as stream:
            stream.writelines(lines)
        os.replace(stream.name, kept)
    return {name: counts[name] for name in unsteady}


def read(kept: Path) -> dict[str, int]:
    """Return the counts of the file, without lines that are not whole."""
    try:
        lines = kept.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.split(" ", 1) for line in lines)
    return {pair[1]: int(pair[0]) for pair in pairs if len(pair) == 2 and pair[0].isdecimal()}


def main(passed: Path, unsteady: Sequence[str], listed: Path = LIST) -> int:
    """Count the run, and say which tests were unsteady. Return 1 if one of them was too often, or the list is wrong."""
    try:
        causes = graces(listed)
    except ValueError as error:
        print(error)
        return 1
    try:
        counts = counted(folder(), passed.read_text().splitlines() if passed.exists() else (), unsteady)
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        counts = {}
        if unsteady:
            print(f"test: cannot remember the unsteady tests: {error}", file=sys.stderr)
    status = 0
    for name, count in counts.items():
        if count >= TOO_OFTEN:
            print(f"{name} needed a second try in {count} runs in a row.", end=" ")
            if name in causes:
                print(f"tests/{LIST.name} allows it: {causes[name]}")
            else:
                print(f"Find the cause. Mend it, or write the test and the cause into tests/{LIST.name}.")
                status = 1
    if unsteady:
        print(f"unsteady: {' '.join(unsteady)}")
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
