"""The table of gperftools' heap profiler, compared with HeapProfilerDump at the same instant and with google-pprof."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import _cache, answers, debian
from fixtures.limits import HANG
from tests import corekit
from tests.profile.test_profile import Row, pprof

pytestmark = pytest.mark.thorough("it downloads gperftools and runs google-pprof")

RELEASE, PACKAGES = "bookworm", ("google-perftools", "libgoogle-perftools4", "libtcmalloc-minimal4", "libunwind8")
SOURCE = Path(__file__).with_name("heapprofiler.c")


def gperftools() -> Path:
    """Return the folder with Debian's gperftools and google-pprof."""

    def unpack(work: Path) -> None:
        apt = debian.Apt(work / "apt", RELEASE)
        for package in PACKAGES:
            debian.unpack(apt.download(package), work)
        shutil.rmtree(work / "apt")

    return _cache.make(
        _cache.CACHE / "gperftools" / _cache.key(RELEASE, PACKAGES), "gperftools (downloads 400 KB)", unpack
    )


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where, libraries = tmp_path_factory.mktemp("gperftools"), gperftools() / "usr/lib/x86_64-linux-gnu"
    tcmalloc = libraries / "libtcmalloc.so.4"
    program = corekit.compile_c(SOURCE, where / "heapprofiler", str(tcmalloc), f"-Wl,-rpath,{libraries}")
    (where / "run").mkdir()
    environment = {"HEAPPROFILE": str(where / "own"), "LD_LIBRARY_PATH": str(libraries)}
    return corekit.kernel_core(program, where / "run", env=environment)


def rows(text: str) -> list[str]:
    return sorted(text.partition("MAPPED_LIBRARIES")[0].split("\n"))


def google_pprof(program: Path, file: Path, *words: str) -> dict[str, Row]:
    script = gperftools() / "usr/bin/google-pprof"
    argv = ["perl", str(script), "--text", "--show_bytes", *words, str(program), str(file)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=HANG)
    found = re.findall(r"^\s*(\d+)\s+\S+%\s+\S+%\s+(\d+)\s+\S+%\s+(.*)$", done.stdout, re.MULTILINE)
    return {name: Row(int(flat), int(cum)) for flat, cum, name in found}


def test_every_row_is_the_profilers_own(core: Path, tmp_path: Path) -> None:
    target = CoreFile(str(core))
    where = core.parent.parent
    answers.answer(target, "profile", "-o", str(tmp_path / "x.heap"))
    own = where / "own.0001.heap"
    assert rows((tmp_path / "x.heap").read_text()) == rows(own.read_text())
    answers.answer(target, "profile", "-o", str(tmp_path / "x.pb.gz"))
    for kind, word in (("inuse_space", "--inuse_space"), ("alloc_space", "--alloc_space")):
        theirs = google_pprof(where / "heapprofiler", own, word)
        assert google_pprof(where / "heapprofiler", tmp_path / "x.heap", word) == theirs
        report = answers.by_name(answers.answer(target, "profile", "--sample", kind, "--top", "100"))
        ours = {row["function"]: Row(row["flat"], row["cum"]) for row in report["top"]}
        for name in ("leaf", "other", "descend", "main"):
            assert ours[name] == theirs[name]
        assert pprof(f"-sample_index={kind}", tmp_path / "x.pb.gz") == ours
    assert ours["frees"] == Row(50000, 50000), "what was freed counts as allocated"
