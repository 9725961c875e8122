"""The heap profile of a Go program out of its core, compared with what its own runtime wrote at the same instant."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers, gos
from fixtures.limits import HANG
from tests import corekit
from tests.profile.test_profile import Row, pprof, tool

pytestmark = pytest.mark.thorough("it builds a Go program and runs go tool pprof")

SOURCE = Path(__file__).with_name("gomem.go")
TYPES = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space")


@pytest.fixture(scope="module", params=["", *gos.RELEASES])
def core(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the core of a program that the machine's Go built, or that of another release."""
    where = tmp_path_factory.mktemp("gomem")
    own = {"GOTOOLCHAIN": "local", "GOCACHE": str(where / "cache")}
    environment = {
        **{key: value for key, value in os.environ.items() if key != "GOROOT"},
        "GO111MODULE": "off",
        "CGO_ENABLED": "0",
        **(own if request.param else {}),
    }
    build = [gos.go(request.param) if request.param else "go", "build", "-o", str(where / "gomem"), str(SOURCE)]
    subprocess.run(build, check=True, cwd=where, env=environment, timeout=HANG)
    (where / "run").mkdir()
    return corekit.kernel_core(where / "gomem", where / "run", "own.pb.gz", env={"GOTRACEBACK": "crash"})


def stacks(file: Path) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the values of each stack of functions and lines, as `go tool pprof -raw` prints them."""
    raw = tool("pprof", "-raw", file)
    samples, _, rest = raw.partition("Samples:\n")[2].partition("Locations\n")
    places = {}
    for text in re.split(r"\n(?=\s+\d+: 0x)", rest.partition("Mappings\n")[0]):
        match = re.match(r"\s*(\d+): 0x([0-9a-f]+) M=\d+ ((?s:.*))", text)
        if match:
            places[match[1]] = " ".join((match[2], *re.findall(r"(?:^|\n)\s*(\S+) \S+?:(?:\d+):", match[3])))
    found = {}
    for line in samples.splitlines():
        match = re.match(r"\s+((?:\d+ +)+\d+): (.*)", line)
        if match and set(match[1].split()) != {"0"}:
            key = tuple(places[number] for number in match[2].split())
            before = found.get(key, ())
            found[key] = (*before, " ".join(match[1].split()))
    return {key: tuple(sorted(values)) for key, values in found.items()}


def test_every_row_is_the_runtimes_own(core: Path, tmp_path: Path) -> None:
    target = CoreFile(str(core))
    for kind in TYPES:
        report = answers.by_name(answers.answer(target, "profile", "--sample", kind, "--top", "1000"))
        rows = {row["function"]: Row(row["flat"], row["cum"]) for row in report["top"]}
        own = pprof(f"-sample_index={kind}", core.parent / "own.pb.gz")
        assert rows == own
        assert rows["main.large"].flat >= 7
    answers.answer(target, "profile", "-o", str(tmp_path / "x.pb.gz"))
    ours, own_stacks = stacks(tmp_path / "x.pb.gz"), stacks(core.parent / "own.pb.gz")
    assert len(own_stacks) > 5
    assert ours.keys() == own_stacks.keys()
    assert ours == own_stacks
