"""Flame graphs of big profiles: what is drawn is right, and memory stays bounded."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import Counter

import pytest

from dmods.profile import flame
from dmods.profile.model import BASE, Line, Location, Profile, Sample
from dmods.profile.view import View
from fixtures._cache import ROOT

DEPTH = 64


def profile(stacks: int, functions: int = 500, shared: int = 0) -> Profile:
    """Return a profile of random stacks of 64 frames. The outermost ``shared`` frames are the same in all."""
    chance = random.Random(7)
    locations = [Location(0, 0x1000 + n, (Line(f"f{n}"),)) for n in range(functions)]
    root = tuple(range(shared))
    samples = [
        Sample((*chance.choices(range(functions), k=DEPTH - shared), *root), (1, chance.randrange(16, 4096)))
        for _ in range(stacks)
    ]
    return Profile(samples=samples, locations=locations, source="a crafted profile")


MEASURED = """
import resource
from dmods.profile import flame
from dmods.profile.view import View
from tests.profile.test_flame import profile
made = profile(100_000, 5000, {shared})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert len(flame.picture(View(made)).frames) > 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.thorough("it draws 100,000 stacks")
@pytest.mark.parametrize("shared", [0, 60])
def test_100000_stacks_of_64_frames_take_little_memory(shared: int) -> None:
    """Their names alone would take 60 MB, and took 140 MB once."""
    argv = [sys.executable, "-c", MEASURED.format(shared=shared)]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert int(said) < 50 << 10  # KiB


@pytest.mark.parametrize("shared", [60, pytest.param(3, marks=pytest.mark.thorough("it draws 20,000 frames"))])
def test_frames_hold_what_their_stacks_hold(shared: int) -> None:
    made = profile(600 if shared > 9 else 200, max(9, shared), shared)
    drawn = flame.picture(View(made))
    sums: Counter[tuple[str, ...]] = Counter()
    for sample in made.samples:
        path = tuple(made.locations[place].lines[0].function for place in reversed(sample.stack))
        for depth in range(len(path) + 1):
            sums[path[:depth]] += sample.values[1]
    paths: list[tuple[str, ...]] = []
    for frame in drawn.frames:
        paths.append((*paths[frame.parent], frame.node.name) if frame.parent >= 0 else ())
    assert {path: frame.node.new for path, frame in zip(paths, drawn.frames)}.items() <= sums.items()
    narrow = sum(value < sums[()] / 4000 and sums[path[:-1]] >= sums[()] / 4000 for path, value in sums.items())
    assert drawn.dropped == narrow
    assert len(drawn.frames) == sum(value >= sums[()] / 4000 for value in sums.values())
    if narrow:
        text = "".join(flame.html(View(made)))
        assert re.search(rf"{narrow} frames? (is|are) too narrow to be drawn", text)


def test_a_difference_takes_the_larger_of_both() -> None:
    made = profile(3, 64, 60)
    first, second, third = made.samples
    made.samples = [
        first._replace(values=(1, 100)),
        first._replace(values=(-1, -300), labels=((BASE, "true"),)),
        second._replace(values=(1, 500)),
        third._replace(values=(-1, -50), labels=((BASE, "true"),)),
    ]
    root = flame.picture(View(made)).frames[0].node
    assert (root.old, root.new, root.width) == (350, 600, 300 + 500 + 50)
