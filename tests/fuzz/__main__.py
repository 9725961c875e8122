"""``scripts/fuzz``: random damage for a while; what breaks is made small and kept."""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import record
from tests.fuzz.driver import DUMPS, REGRESSIONS, Finding, Victim, Worker, replay
from tests.fuzz.recipes import Recipe, invent


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long (10)")
    parser.add_argument("--seed", default=str(int(time.time())), help="repeat the run of that seed (the time)")
    parser.add_argument("--replay", type=Path, nargs="*", help="only these recipes (none named: all that are kept)")
    parser.add_argument("--truncate", type=int, metavar="N", help="cut the cores at N random places, and nothing else")
    parser.add_argument("--kernel", action="store_true", help="with --truncate: dumps of a kernel, N of each format")
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
    return fuzz(args.minutes, args.seed, args.keep)


def truncate(count: int, seed: str) -> int:
    """Each cut core ends with an answer or two lines that say why not, within the seconds that the worker grants."""
    dice, began = random.Random(seed), time.monotonic()
    recipes = [Recipe(DUMPS[n % len(DUMPS)], keep=dice.random()) for n in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        found = [one for _recipe, some in replay(recipes, Path(folder)) for one in some]
    for one in found:
        print(f"{one.recipe.text()}{one.command}: {one.trace}\n")
    print(f"{count} truncated cores, {len(found)} defects")
    record.add("truncated cores", time.monotonic() - began, count, 0, bool(found))
    return 1 if found else 0


def truncate_kernels(count: int, seed: str) -> int:
    """Each cut dump ends likewise, within the seconds that its process has."""
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


def fuzz(minutes: float, seed: str, keep: Path) -> int:
    print(f"seed {seed}, for {minutes:g} minutes", flush=True)
    deadline = time.monotonic() + 60 * minutes
    seen: dict[str, Finding] = {}
    count = 0
    with tempfile.TemporaryDirectory() as folder, Worker() as worker:
        victims = [Victim(dump, Path(folder)) for dump in DUMPS]
        while time.monotonic() < deadline:
            victim = victims[count % len(victims)]
            recipe = invent(victim.fields, victim.dump, f"{seed}-{count}")
            count += 1
            for one in _judge(victim, worker, recipe):
                if one.place not in seen:
                    seen[one.place] = small = _smaller(victim, worker, one)
                    path = keep / f"{seed}-{count - 1}-{len(seen)}.json"
                    path.write_text(small.recipe.text())
                    print(f"{path}: {small.command}\n{small.trace}\n", flush=True)
    print(f"{count} damaged cores, {len(seen)} defects")
    record.add("whole cores", 60 * minutes, count, 0, bool(seen))
    return 1 if seen else 0


def _judge(victim: Victim, worker: Worker, recipe: Recipe) -> list[Finding]:
    exe = victim.damage(recipe)
    try:
        return worker.judge(recipe, victim.core, exe)
    finally:
        victim.mend(recipe)


def _smaller(victim: Victim, worker: Worker, finding: Finding) -> Finding:
    """The same defect with as few edits as possible, leaving out one at a time."""
    recipe = finding.recipe
    for edit in recipe.edits:
        less = dataclasses.replace(recipe, edits=tuple(other for other in recipe.edits if other is not edit))
        again = [one for one in _judge(victim, worker, less) if one.place == finding.place]
        if again:
            recipe, finding = less, again[0]
    why = finding.place.replace(str(Path.cwd()), "")
    return dataclasses.replace(finding, recipe=dataclasses.replace(recipe, why=why))


if __name__ == "__main__":
    sys.exit(main())
