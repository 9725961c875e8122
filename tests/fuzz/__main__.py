"""``scripts/fuzz``: run commands on randomly damaged cores for a while.

Recipes that find defects are reduced and kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from tests.fuzz import record
from tests.fuzz.driver import DUMPS, REGRESSIONS, Finding, Verdict, Victim, Worker, replay
from tests.fuzz.recipes import Recipe, invent


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long (10)")
    parser.add_argument("--seed", default=str(int(time.time())), help="repeat the run of that seed (the time)")
    parser.add_argument("--replay", type=Path, nargs="*", help="only these recipes (none named: all that are kept)")
    parser.add_argument("--truncate", type=int, metavar="N", help="cut the cores at N random places, and nothing else")
    parser.add_argument("--kernel", action="store_true", help="with --truncate: dumps of a kernel, N of each format")
    parser.add_argument("--dumps", nargs="+", choices=DUMPS, default=list(DUMPS), help="only cores of these kinds")
    parser.add_argument("--jobs", type=int, default=1, help="so many cores at a time (1)")
    parser.add_argument("--keep", type=Path, default=REGRESSIONS, help=f"where new ones go ({REGRESSIONS.name})")
    args = parser.parse_args()
    if args.replay is not None:
        paths = args.replay or sorted(REGRESSIONS.glob("*.json"))
        with tempfile.TemporaryDirectory() as folder:
            found = [one for _r, some in replay([Recipe.read(path) for path in paths], Path(folder)) for one in some]
        for one in found:
            print(f"{one.command}: {one.trace}\n")
        return 1 if found else 0
    if args.truncate:
        return (truncate_kernels if args.kernel else truncate)(args.truncate, args.seed)
    return fuzz(Plan(args.minutes, args.seed, args.dumps, args.keep), args.jobs)


def truncate(count: int, seed: str) -> int:
    """Cut cores at random.

    Each must end with an answer or two lines that say why not, within the worker's time limit.
    """
    dice, began = random.Random(seed), time.monotonic()
    recipes = [Recipe(dump, keep=dice.random()) for dump in islice(cycle(DUMPS), count)]
    with tempfile.TemporaryDirectory() as folder:
        found = [one for _recipe, some in replay(recipes, Path(folder)) for one in some]
    for one in found:
        print(f"{one.recipe.text()}{one.command}: {one.trace}\n")
    print(f"{count} truncated cores, {len(found)} defects")
    record.add("truncated cores", time.monotonic() - began, count, 0, bool(found))
    return 1 if found else 0


def truncate_kernels(count: int, seed: str) -> int:
    """Cut kernel dumps at random. Each must end with an answer or two lines, within its process's time limit."""
    from tests.fuzz import vmcores

    defects = 0
    with tempfile.TemporaryDirectory() as folder:
        for form in vmcores.FORMATS:
            began = time.monotonic()
            ended = list(vmcores.truncated(form, count, seed, Path(folder)))
            wrong = [f"{form} cut at {one.kept}: {text}" for one in ended for text in one.wrong]
            print("\n".join(wrong))
            refused = sum(one.said == [vmcores.REFUSED] for one in ended)
            print(
                f"{len(ended)} truncated {form}s ({refused} that drgn does not open), {len(wrong)} defects", flush=True
            )
            record.add(f"truncated {form}s", time.monotonic() - began, len(ended), 0, bool(wrong))
            defects += len(wrong)
    return 1 if defects else 0


@dataclass(frozen=True)
class Plan:
    """The cores to damage, the seed, the duration, and the folder for recipes that find defects."""

    minutes: float
    seed: str
    dumps: list[str]
    keep: Path


class Tally:
    """The work that all jobs together have done so far."""

    def __init__(self) -> None:
        self.cores = 0
        self.runs = 0
        self.seen: dict[str, Finding] = {}
        self._lock = threading.Lock()

    def add(self, verdict: Verdict) -> list[Finding]:
        """Return the findings of the verdict that are new."""
        with self._lock:
            self.cores += 1
            self.runs += verdict.runs
            new = {one.place: one for one in verdict.findings if one.place not in self.seen}
            self.seen.update(new)
            return list(new.values())


def fuzz(plan: Plan, jobs: int) -> int:
    print(f"seed {plan.seed}, for {plan.minutes:g} minutes", flush=True)
    began, tally = time.monotonic(), Tally()
    with ThreadPoolExecutor(jobs) as pool:
        for ended in [pool.submit(_job, plan, f"{plan.seed}-{job}", tally) for job in range(jobs)]:
            ended.result()
    print(f"{tally.cores} damaged cores, {tally.runs} commands run on them, {len(tally.seen)} defects")
    seconds = time.monotonic() - began
    record.add("damaged cores", seconds, tally.cores, 0, bool(tally.seen))
    record.add("commands on damaged cores", seconds, tally.runs, 0, bool(tally.seen))
    return 1 if tally.seen else 0


def _job(plan: Plan, seed: str, tally: Tally) -> None:
    deadline = time.monotonic() + 60 * plan.minutes
    with tempfile.TemporaryDirectory() as folder, Worker() as worker:
        victims = [Victim(dump, Path(folder)) for dump in plan.dumps]
        for count, victim in enumerate(cycle(victims)):
            if time.monotonic() > deadline:
                return
            recipe = invent(victim.fields, victim.dump, f"{seed}-{count}")
            for one in tally.add(_judge(victim, worker, recipe)):
                small = _smaller(victim, worker, one)
                path = plan.keep / f"{seed}-{count}-{sum(one.place.encode()) % 1000}.json"
                path.write_text(small.recipe.text())
                print(f"{path}: {small.command}\n{small.trace}\n", flush=True)


def _judge(victim: Victim, worker: Worker, recipe: Recipe) -> Verdict:
    exe = victim.damage(recipe)
    try:
        return worker.judge(recipe, victim.core, exe)
    finally:
        victim.mend(recipe)


def _smaller(victim: Victim, worker: Worker, finding: Finding) -> Finding:
    """Return the same defect with as few edits as possible. One edit at a time is left out."""
    recipe = finding.recipe
    for edit in recipe.edits:
        less = dataclasses.replace(recipe, edits=tuple(other for other in recipe.edits if other is not edit))
        again = [one for one in _judge(victim, worker, less).findings if one.place == finding.place]
        if again:
            recipe, finding = less, again[0]
    why = finding.place.replace(str(Path.cwd()), "")
    return dataclasses.replace(finding, recipe=dataclasses.replace(recipe, why=why))


if __name__ == "__main__":
    sys.exit(main())
