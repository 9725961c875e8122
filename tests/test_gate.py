"""scripts/test itself, in a checkout that has tests of ours only: what it runs twice, and when it is green."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from fixtures.answers import Finished, finished

ROOT = Path(__file__).resolve().parents[1]

CONFTEST = """
from again import Failed
from pathlib import Path

def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true")
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
    shutil.copy(ROOT / "tests" / "again.py", root / "tests")
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


def run(checkout: Path, *, unsteady: int = 0, broken: int = 0, moving: int = 0, engine: int = 0) -> Finished:
    counts = {"unsteady": unsteady, "broken": broken, "moving": moving}
    values = {name: [f"{name[0]}{n}" for n in range(count)] for name, count in counts.items()}
    (checkout / "tests" / "test_made.py").write_text(TESTS.format(**values))
    path = f"{checkout / 'bin'}:/usr/bin:/bin"
    return finished(checkout / "scripts" / "test", env={"PATH": path, "HOME": "/nonexistent", "CARGO": str(engine)})


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


def test_more_than_three_are_red(checkout: Path) -> None:
    assert run(checkout, unsteady=4).returncode == 1


def test_what_fails_twice_is_red(checkout: Path) -> None:
    done = run(checkout, unsteady=1, broken=1)
    assert done.returncode == 1
    assert last(done) == "unsteady: tests/test_made.py::test_unsteady[u0]"


def test_what_fails_in_a_moving_suite_is_told(checkout: Path) -> None:
    done = run(checkout, moving=5)
    assert done.returncode == 0, done.stdout + done.stderr
    assert last(done) == "moving suites: 5 failed"
    assert "tests/test_made.py::test_of_a_moving_suite[m4]" in done.stdout.splitlines()
    done = run(checkout, moving=5, unsteady=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert last(done) == "unsteady: tests/test_made.py::test_unsteady[u0]"
    assert run(checkout, moving=1, broken=1).returncode == 1


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
    (tmp_path / "test_made.py").write_text(
        "import subprocess\n\ndef test_a():\n    for _ in range(10):\n        subprocess.run(['true'], check=True)\n"
    )
    words = ("-m", "pytest", "-q", "--numprocesses", "1", "--rootdir", tmp_path, tmp_path / "test_made.py")
    done = finished(sys.executable, *words, cwd=ROOT)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == ("too many" in said)
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
