"""The work of reading debug information, which is counted: it grows as the file does. The second command has none."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dmods import _engine

#: A header as many units have it: a class with a base, members, a template, and functions that are only declared.
_HEADER = """
template <typename T> struct Box { T inner; Box<T> *next; T *get(); };
struct Base { virtual ~Base(); long id; };
struct Shared : Base { Box<int> numbers; Box<Shared *> others; char name[16]; };
"""
_FUNCTIONS = 40  # of each class


def _program(where: Path, units: int, parameters: int = 2, flags: Sequence[str] = ()) -> Path:
    """Build a program: each unit has a class of its own, a variable of that class, and the types of the header."""
    where.mkdir()
    (where / "shared.h").write_text(_HEADER)
    names = [f"p{number}" for number in range(parameters)]
    declared = "".join(
        f"  void member{at}({', '.join(f'long {name}' for name in names)});\n" for at in range(_FUNCTIONS)
    )
    sources = []
    for unit in range(units):
        name = f"Unit{unit:03}"
        source = where / f"{name}.cc"
        source.write_text(
            f'#include "shared.h"\nstruct {name} {{\n{declared}  {name} *next;\n  Shared *shared;\n}};\n'
            f"{name} the{unit:03};\n"
        )
        sources.append(str(source))
    main = where / "main.cc"
    main.write_text('#include "shared.h"\nBase::~Base() {}\nint main() { return 0; }\n')
    program = where / "program"
    subprocess.run(["g++", "-g", "-O0", *flags, str(main), *sources, "-o", str(program)], check=True)
    return program


def _opened(program: Path, folder: Path | None = None) -> tuple[int, int]:
    """Return the work of the parser, and how many variables the program has."""
    graph = _engine.TypeGraph(8, None if folder is None else str(folder), 0)
    number = graph.open(str(program), [], None, 0)
    assert number is not None
    variables, left_out = graph.add_variables(number, [])
    assert left_out == 0
    return graph.parsing_work, variables


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    where = tmp_path_factory.mktemp("units")
    return {count: _program(where / str(count), count) for count in (2, 8, 24)}


def _grown(programs: dict[int, Path]) -> list[tuple[int, int]]:
    """Return how many bytes of debug information each larger program has more, and how much more work."""
    found = []
    for count, program in sorted(programs.items()):
        listed = subprocess.run(["size", "-A", "-d", program], check=True, capture_output=True, text=True).stdout
        (size,) = (int(line.split()[1]) for line in listed.splitlines() if line.startswith(".debug_info"))
        work, variables = _opened(program)
        assert variables == count
        found.append((size, work))
    return [(b[0] - a[0], b[1] - a[1]) for a, b in zip(found, found[1:])]


def test_work_grows_no_faster_than_the_program(programs: dict[int, Path]) -> None:
    (size, work), (more_size, more_work) = _grown(programs)
    assert work > size > 0
    assert more_work / more_size < 1.1 * work / size


def test_the_second_command_parses_nothing(programs: dict[int, Path], tmp_path: Path) -> None:
    work, variables = _opened(programs[8], tmp_path)
    assert work > 0
    assert _opened(programs[8], tmp_path) == (0, variables)


def test_parameters_of_declared_functions_are_passed_over(tmp_path: Path) -> None:
    """The pass for the index takes the code of each parameter. No other pass comes by: the file says what follows."""
    work = {count: _opened(_program(tmp_path / str(count), 1, count))[0] for count in (1, 41)}
    more = _FUNCTIONS * 40
    assert more * 16 <= work[41] - work[1] < more * 40


def test_two_writers_keep_one_whole_table(programs: dict[int, Path], tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: _opened(programs[8], tmp_path)[1], range(4)))
    assert set(found) == {8}
    assert [path.suffix for path in tmp_path.iterdir()] == [".types"]
    assert _opened(programs[8], tmp_path) == (0, 8)
