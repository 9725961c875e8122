"""scripts/release in a checkout whose other scripts are stubs; scripts/backend.py, which pip calls to build dmods."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.answers import Finished, finished

ROOT = Path(__file__).resolve().parents[1]
VERSION = "1.2.3"
DATED = f"## {VERSION} (2026-01-02)"
FILES = {
    "pyproject.toml": f'[project]\nname = "dmods"\nversion = "{VERSION}"\n',
    "engine/Cargo.toml": f'[workspace.package]\nversion = "{VERSION}"\n',
    "engine/Cargo.lock": f'name = "dmods-engine"\nversion = "{VERSION}"\n\nname = "libc"\nversion = "0.2"\n',
    "docs/dmods.1": f'.TH DMODS 1 "" "dmods {VERSION}" "User Commands"\n',
    "CHANGELOG.md": f"# Changelog\n\n## Unreleased\n\n{DATED}\n\n- all of it\n\n## 1.2 (2025-01-02)\n",
    ".gitignore": "/dist/\n",
}
TOTAL = "           Total       3 buffers, 3096 bytes\n"
LEAKED = "malloc-1032            1  00007ffff7aacf60 {}+0xe   1.0K\n"
#: What scripts/demo prints.
DEMO = 4 * TOTAL + "".join(map(LEAKED.format, ("buf_create", "func_leak", "main"))) + " main+0x3a  [tutorial.c:52]\n"
SCRIPTS = {
    "scripts/test": 'echo "tests ran: $*"\nexit "${RED:-0}"',
    "scripts/wheel": f'mkdir -p "$1"\necho wheel >"$1/dmods-${{BUILT:-{VERSION}}}-cp39-abi3-linux_x86_64.whl"',
    "scripts/demo": 'cat "$DEMO"',
    ".venv/bin/maturin": f'echo sdist >"$3/dmods-{VERSION}.tar.gz"',
    # `python -m venv DIR` makes a Python that installs anything, and a dmods that says its version.
    ".venv/bin/python": f"""mkdir -p "$3/bin" "$3/share/man/man1"
echo page >"$3/share/man/man1/dmods.1"
printf '#!/bin/sh\\n' >"$3/bin/python"
printf '#!/bin/sh\\necho dmods {VERSION}\\n' >"$3/bin/dmods"
chmod +x "$3"/bin/*""",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "a checkout"
    scripts = {name: f"#!/bin/sh\n{text}\n" for name, text in SCRIPTS.items()}
    for name, text in {**FILES, **scripts}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name in scripts:
        (root / name).chmod(0o755)
    shutil.copy(ROOT / "scripts" / "release", root / "scripts")
    git(root, "init", "-q")
    commit(root)
    return root


def git(root: Path, *words: str) -> None:
    author = ["-c", "user.name=you", "-c", "user.email=you@example.org"]
    subprocess.run(["git", "-C", root, *author, *words], check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "add", "--all", "--force")
    git(root, "commit", "-qm", "all")


def release(root: Path, *words: object, demo: str = DEMO, **environment: str) -> Finished:
    said = root.parent / "demo"
    said.write_text(demo)
    return finished(root / "scripts" / "release", *words, env={**os.environ, "DEMO": str(said), **environment})


def refused(root: Path, *words: object, demo: str = DEMO, **environment: str) -> list[str]:
    """Return what the script said to stderr, after it has made nothing."""
    done = release(root, *words, demo=demo, **environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert not (root / "dist").exists()
    return done.stderr.splitlines()


def test_a_release(checkout: Path) -> None:
    done = release(checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests ran: --all" in done.stdout
    made = {path.name: path for path in (checkout / "dist").iterdir()}
    names = [f"dmods-{VERSION}-cp39-abi3-linux_x86_64.whl", f"dmods-{VERSION}.tar.gz"]
    assert sorted(made) == ["SHA256SUMS", *names]
    sums = [f"{hashlib.sha256(made[name].read_bytes()).hexdigest()}  {name}" for name in names]
    assert made["SHA256SUMS"].read_text().splitlines() == sums
    for kind in ("wheel", "sdist"):
        assert f"the {kind}: the demo's answers are right" in done.stdout


def test_it_says_that_the_tests_were_left_out(checkout: Path, tmp_path: Path) -> None:
    done = release(checkout, "--tested", tmp_path / "there")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests ran" not in done.stdout
    assert "the tests are left out (--tested)" in done.stdout
    assert (tmp_path / "there" / "SHA256SUMS").is_file()
    assert not (checkout / "dist").exists()


def test_a_folder_with_an_older_release_keeps_it(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "dmods-1.2.2.tar.gz").write_text("older")
    (tmp_path / f"dmods-{VERSION}-stale.whl").write_text("of this version")
    assert release(checkout, "--tested", tmp_path).returncode == 0
    listed = [line.split()[1] for line in (tmp_path / "SHA256SUMS").read_text().splitlines()]
    assert listed == [f"dmods-{VERSION}-cp39-abi3-linux_x86_64.whl", "dmods-1.2.2.tar.gz", f"dmods-{VERSION}.tar.gz"]


def test_red_tests_end_it(checkout: Path) -> None:
    refused(checkout, RED="1")


def test_a_tree_with_changes(checkout: Path) -> None:
    (checkout / "new").touch()
    assert refused(checkout) == [
        "release: the tree has changes: new",
        "release: commit them, or put them away: git stash -u",
    ]


@pytest.mark.parametrize("undated", [f"## {VERSION}", "## 1.2.4 (2026-01-02)", f"{DATED} and more"])
def test_no_dated_entry(checkout: Path, undated: str) -> None:
    (checkout / "CHANGELOG.md").write_text(FILES["CHANGELOG.md"].replace(DATED, undated))
    commit(checkout)
    what, how = refused(checkout)
    assert what == f"release: CHANGELOG.md has no dated entry for {VERSION}"
    assert f"## {VERSION} (" in how


@pytest.mark.parametrize("name", ["engine/Cargo.toml", "engine/Cargo.lock", "docs/dmods.1"])
def test_versions_that_disagree(checkout: Path, name: str) -> None:
    (checkout / name).write_text(FILES[name].replace(VERSION, "1.2.2"))
    commit(checkout)
    what, _how = refused(checkout)
    assert what == f"release: the version of {name} is 1.2.2, and that of pyproject.toml is {VERSION}"


def test_a_wheel_of_another_version(checkout: Path) -> None:
    assert "not a wheel and an sdist" in refused(checkout, "--tested", BUILT="1.2.2")[-1]


@pytest.mark.parametrize(
    ("demo", "wrong"),
    [
        (DEMO.replace(TOTAL, "", 1), "the right total in 3 of the demo's 4 answers"),
        (DEMO.replace("func_leak+", "?+"), "does not name func_leak"),
        (DEMO.replace("  [tutorial.c:52]", ""), "bufctl_audit shows no line"),
    ],
)
def test_a_wrong_answer_of_the_demo(checkout: Path, demo: str, wrong: str) -> None:
    said = refused(checkout, "--tested", demo=demo)
    assert any(wrong in line for line in said), said


def test_help_and_an_unknown_option(checkout: Path) -> None:
    done = release(checkout, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("scripts/release [DIR]: makes a release")
    done = release(checkout, "--untested")
    assert (done.returncode, done.stdout) == (2, "")


# --- scripts/backend.py ---

#: In the place of maturin: it says what is there as it builds.
MATURIN = """
from pathlib import Path
def build_wheel(directory, settings=None, metadata=None):
    page = Path("dmods._engine.data/data/share/man/man1/dmods.1")
    return f"{Path('dmods/libdmods_audit.so').exists()} {page.read_text()}"
build_editable = build_wheel
"""


def built(tmp_path: Path, auditor: str) -> Finished:
    """Build in a tree with the given audit/build, as pip does: in the tree, with ``scripts`` on sys.path."""
    for name in ("audit", "docs", "dmods", "scripts"):
        (tmp_path / name).mkdir()
    (tmp_path / "audit" / "build").write_text(auditor)
    (tmp_path / "docs" / "dmods.1").write_text("the page")
    (tmp_path / "maturin.py").write_text(MATURIN)
    shutil.copy(ROOT / "scripts" / "backend.py", tmp_path / "scripts")
    code = "import sys; sys.path[:0] = ['scripts', '.']; import backend; print(backend.build_wheel('out'))"
    done = finished(sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "dmods._engine.data").exists()
    return done


def test_the_backend_adds_the_auditor_and_the_man_page(tmp_path: Path) -> None:
    done = built(tmp_path, "touch dmods/libdmods_audit.so")
    assert (done.stdout, done.stderr) == ("True the page\n", "")


def test_the_backend_says_that_the_auditor_cannot_be_compiled(tmp_path: Path) -> None:
    done = built(tmp_path, "exit 1")
    assert done.stdout == "False the page\n"
    assert "`dmods run` will not work" in done.stderr
    assert "install gcc" in done.stderr
