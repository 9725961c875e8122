"""scripts/test itself, in a checkout that has tests of ours only: what it runs twice, and when it is green."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.answers import Finished, finished
from tests import unsteady
from tests.counts import TOO_MANY

ROOT = Path(__file__).resolve().parents[1]

CONFTEST = """
from tests.again import Failed
from pathlib import Path

def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true")
    parser.addoption("--all", action="store_true")
    parser.addoption("--failed-to", type=Path)

def pytest_configure(config):
    if config.getoption("failed_to") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failed(config.getoption("failed_to")))
"""

TESTS = """
import pytest
from pathlib import Path

def test_steady():
    assert True

@pytest.mark.parametrize("name", {unsteady!r})
def test_unsteady(name, request):
    seen = Path(__file__).with_name("seen " + name)
    first = not seen.exists()
    seen.touch()
    assert not first

@pytest.mark.parametrize("name", {broken!r})
def test_broken(name):
    assert False

@pytest.mark.moving
@pytest.mark.parametrize("name", {moving!r})
def test_of_a_moving_suite(name):
    assert False
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with scripts/test, a setup that does nothing, an engine without tests, and no fixtures."""
    root = tmp_path / "a folder"
    for name in ("scripts", "tests", "fixtures", "bin", ".venv/bin"):
        (root / name).mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "test", root / "scripts")
    for name in ("__init__.py", "again.py", "unsteady.py"):
        shutil.copy(ROOT / "tests" / name, root / "tests")
    (root / "tests" / "unsteady.txt").touch()
    (root / "tests" / "conftest.py").write_text(CONFTEST)
    for name, text in {"scripts/setup": "exit 0", "bin/cargo": 'echo "cargo ran"\nexit "${CARGO}"'}.items():
        (root / name).write_text(f"#!/bin/sh\n{text}\n")
        (root / name).chmod(0o755)
    (root / ".venv/bin/python").symlink_to(sys.executable)
    (root / ".venv/pyvenv.cfg").symlink_to(Path(sys.prefix) / "pyvenv.cfg")
    (root / ".venv/lib").symlink_to(Path(sys.prefix) / "lib")
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\ntestpaths = ['tests']\n")
    for name in ("__init__", "__main__", "versions"):
        (root / "fixtures" / f"{name}.py").write_text("print('versions') if __name__ != 'fixtures' else None\n")
    return root


def run(checkout: Path, *words: str, unsteady: int = 0, broken: int = 0, moving: int = 0, engine: int = 0) -> Finished:
    """Return a run of scripts/test with so many tests of each kind. The unsteady ones fail again."""
    for seen in (checkout / "tests").glob("seen *"):
        seen.unlink()
    counts = {"unsteady": unsteady, "broken": broken, "moving": moving}
    values = {name: [f"{name[0]}{n}" for n in range(count)] for name, count in counts.items()}
    (checkout / "tests" / "test_made.py").write_text(TESTS.format(**values))
    path = f"{checkout / 'bin'}:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": "/nonexistent", "CARGO": str(engine), "XDG_CACHE_HOME": str(cache(checkout))}
    return finished(checkout / "scripts" / "test", *words, env=environment)


def cache(checkout: Path) -> Path:
    return checkout.with_name("cache")


def last(done: Finished) -> str:
    return done.stdout.splitlines()[-1]


def test_a_run_without_failures(checkout: Path) -> None:
    done = run(checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cargo ran" in done.stdout
    assert last(done) == "versions"


def test_what_passes_the_second_time_is_named(checkout: Path) -> None:
    done = run(checkout, unsteady=2)
    assert done.returncode == 0, done.stdout + done.stderr
    kind, _, names = last(done).partition(": ")
    assert kind == "unsteady"
    assert sorted(names.split()) == [f"tests/test_made.py::test_unsteady[u{n}]" for n in range(2)]
    # They are named as they fail, too: a run that is cut says so much.
    assert all(f"failed: {name}\n" in done.stdout for name in names.split())


def test_more_than_three_are_red(checkout: Path) -> None:
    assert run(checkout, unsteady=4).returncode == 1


def test_what_fails_twice_is_red(checkout: Path) -> None:
    done = run(checkout, unsteady=1, broken=1)
    assert done.returncode == 1
    assert last(done) == "unsteady: tests/test_made.py::test_unsteady[u0]"


@pytest.mark.thorough("it runs scripts/test")
def test_what_fails_in_a_moving_suite_is_told(checkout: Path) -> None:
    done = run(checkout, moving=5)
    assert done.returncode == 0, done.stdout + done.stderr
    assert last(done) == "moving suites: 5 failed"
    assert "tests/test_made.py::test_of_a_moving_suite[m4]" in done.stdout.splitlines()
    done = run(checkout, moving=5, unsteady=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert last(done) == "unsteady: tests/test_made.py::test_unsteady[u0]"
    assert run(checkout, moving=1, broken=1).returncode == 1


@pytest.mark.thorough("it runs scripts/test")
def test_a_red_engine_hides_no_test(checkout: Path) -> None:
    done = run(checkout, engine=1)
    assert done.returncode == 1
    assert " passed" in done.stdout


@pytest.mark.parametrize(("most", "said"), [(15, " of at most 15"), (5, ": too many, at most 5")])
def test_a_run_that_starts_too_many_processes_is_red(tmp_path: Path, most: int, said: str) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.counts import Counts\n\ndef pytest_configure(config):\n"
        f"    config.pluginmanager.register(Counts({{'processes': {most}, 'guests': 0}}))\n"
    )
    # What makes a kernel or a guest is not counted: these are kept for all checkouts.
    (tmp_path / "test_made.py").write_text(
        "import subprocess\nfrom fixtures import _cache\n\n"
        "def start(count=10):\n    for _ in range(count):\n        subprocess.run(['true'], check=True)\n\n"
        "def test_a(monkeypatch, tmp_path):\n    start()\n"
        "    monkeypatch.setattr(_cache, 'KERNELS', tmp_path / 'kernels')\n"
        "    _cache.make(tmp_path / 'kernels' / 'one', 'a guest', lambda work: start(30))\n"
    )
    words = ("-m", "pytest", "-q", "--numprocesses", "1", "--rootdir", tmp_path, tmp_path / "test_made.py")
    done = finished(sys.executable, *words, cwd=ROOT)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == (TOO_MANY if "too many" in said else 0)
    assert re.search(rf"the tests needed 1\d processes{re.escape(said)}", done.stdout)


def test_an_engine_that_passed_is_not_tested_again(checkout: Path) -> None:
    kept = checkout / "kept"
    kept.mkdir()
    (checkout / ".venv" / ".engine").write_text(f"{kept}\n")
    assert run(checkout, engine=1).returncode == 1
    assert not (kept / "tests").exists()
    assert "cargo ran" in run(checkout).stdout
    done = run(checkout, engine=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "(This engine has passed them: " in done.stdout


def test_a_file_that_cannot_be_imported_is_red(checkout: Path) -> None:
    (checkout / "tests" / "test_other.py").write_text("import nothing_of_that_name\n")
    assert run(checkout).returncode != 0


#: The test that is unsteady in a run of ours with one such test.
UNSTEADY = "tests/test_made.py::test_unsteady[u0]"


def remembered(checkout: Path) -> Path:
    return cache(checkout) / "dmods-tests" / "unsteady"


def test_the_third_unsteady_run_in_a_row_is_red(checkout: Path) -> None:
    """Runs of another clone count, and those with --all."""
    assert run(checkout, unsteady=1).returncode == 0
    clone = checkout.with_name("another folder")
    shutil.copytree(checkout, clone, symlinks=True)
    assert run(clone, "--all", unsteady=1).returncode == 0
    assert remembered(checkout).read_text() == f"2 {UNSTEADY}\n"
    done = run(checkout, unsteady=1)
    assert done.returncode == 1
    said, named = done.stdout.splitlines()[-2:]
    assert said.startswith(f"{UNSTEADY} needed a second try in 3 runs in a row. ")
    assert named == f"unsteady: {UNSTEADY}"


@pytest.mark.thorough("it runs scripts/test")
def test_a_run_that_passes_the_first_time_clears_the_count(checkout: Path) -> None:
    broken, absent = "tests/test_made.py::test_broken[b0]", "tests/test_made.py::test_absent"
    remembered(checkout).parent.mkdir(parents=True)
    remembered(checkout).write_text(f"2 tests/test_made.py::test_steady\n2 {broken}\n2 {absent}\n")
    assert run(checkout, broken=1).returncode == 1
    assert remembered(checkout).read_text() == f"2 {broken}\n2 {absent}\n"


@pytest.mark.thorough("it runs scripts/test")
def test_a_grace_without_a_cause_is_red(checkout: Path) -> None:
    (checkout / "tests" / "unsteady.txt").write_text(f"# comment\n{UNSTEADY}\n")
    done = run(checkout)
    assert done.returncode == 1
    assert last(done) == "unsteady.txt, line 2: the test has no cause. Write `TEST # CAUSE`."


@pytest.mark.parametrize("line", [UNSTEADY, f"{UNSTEADY} # ", f"{UNSTEADY} #", f"{UNSTEADY} #cause"])
def test_a_cause_is_told_apart_from_the_test(tmp_path: Path, line: str) -> None:
    (tmp_path / "list").write_text(f"\n{UNSTEADY} # a cause # and more\n")
    assert unsteady.graces(tmp_path / "list") == {UNSTEADY: "a cause # and more"}
    (tmp_path / "list").write_text(f"{line}\n")
    with pytest.raises(ValueError, match="line 1: the test has no cause"):
        unsteady.graces(tmp_path / "list")


def test_a_cause_gives_a_test_a_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "list").write_text("a[1 2] # the kernel drops the signal\n")
    (tmp_path / "passed").write_text("b\n")
    found = [unsteady.main(tmp_path / "passed", names, tmp_path / "list") for names in (["a[1 2]"], ["a[1 2]", "c"])]
    found += [unsteady.main(tmp_path / "absent", ["a[1 2]", "c"], tmp_path / "list") for _ in range(2)]
    assert found == [0, 0, 0, 1]
    said = capsys.readouterr().out.splitlines()[-3:]
    assert said[0].startswith("a[1 2] needed a second try in 4 runs in a row. ")
    assert said[0].endswith("allows it: the kernel drops the signal")
    assert said[1].startswith("c needed a second try in 3 runs in a row. Find the cause. ")
    assert said[2] == "unsteady: a[1 2] c"


@pytest.mark.thorough("it runs scripts/test")
def test_a_folder_that_cannot_be_written_is_no_error(checkout: Path) -> None:
    cache(checkout).write_text("a file")
    done = run(checkout, unsteady=1)
    assert done.returncode == 0, done.stdout
    assert last(done) == f"unsteady: {UNSTEADY}"
    assert "cannot remember the unsteady tests" in done.stderr


def test_a_file_of_counts_that_is_damaged_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    kept = tmp_path / "unsteady"
    kept.write_bytes(b"2 a\n\xff\xff\n\nx b\n-1 c\n3\n2 d with words[x y]\n")
    assert unsteady.counted(tmp_path, ["d"], ["a", "e"]) == {"a": 3, "e": 1}
    assert unsteady.read(kept) == {"d with words[x y]": 2, "a": 3, "e": 1}


def test_the_oldest_counts_are_forgotten(tmp_path: Path) -> None:
    names = [f"test {number}" for number in range(unsteady.MOST)]
    unsteady.counted(tmp_path, [], names)
    unsteady.counted(tmp_path, [], [names[0], "new"])
    kept = list(unsteady.read(tmp_path / "unsteady"))
    assert kept == [*names[2:], names[0], "new"]


def test_runs_that_end_at_the_same_time_are_all_counted(tmp_path: Path) -> None:
    code = "import sys, pathlib; from tests import unsteady; unsteady.counted(pathlib.Path(sys.argv[1]), [], ['a'])"
    runs = [subprocess.Popen([sys.executable, "-c", code, tmp_path], cwd=ROOT) for _ in range(8)]
    assert [each.wait() for each in runs] == [0] * 8
    assert unsteady.read(tmp_path / "unsteady") == {"a": 8}


def stale(root: Path) -> list[str]:
    """Return the tests of the list that are not there any more."""
    listed = unsteady.graces(root / "tests" / "unsteady.txt")
    files = sorted({name for name in (test.partition("::")[0] for test in listed) if (root / name).is_file()})
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    environment = {**os.environ, "DMODS_KERNELS": "all"}
    there = finished(*collect, cwd=root, env=environment).stdout.splitlines() if files else []
    return sorted(listed.keys() - set(there))


def test_each_grace_is_of_a_test_that_is_there() -> None:
    assert stale(ROOT) == []


def test_a_grace_of_a_test_that_is_gone_is_found(checkout: Path) -> None:
    (checkout / "tests" / "test_made.py").write_text(TESTS.format(unsteady=["u0"], broken=[], moving=[]))
    gone = ["tests/test_gone.py::test_x", "tests/test_made.py::test_unsteady[u7]"]
    lines = [f"{test} # a cause\n" for test in (*gone, UNSTEADY, "tests/test_made.py::test_steady")]
    (checkout / "tests" / "unsteady.txt").write_text("".join(lines))
    assert stale(checkout) == gone
