"""Programs that have CPython inside (the host's libpython3*.a), stripped; and builds that dmods refuses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UserError
from dmods.graph.owners.heap_owners import find_owners
from fixtures import answers, pythons
from tests.corekit import kernel_core

# Where the host's own CPython has its headers and its archive, and what that is linked with.
_ASK = (
    "import json, sysconfig as own; get = own.get_config_var;"
    "print(json.dumps([own.get_path('include'), f'{get(\"LIBPL\")}/{get(\"LIBRARY\")}',"
    "*get('MODLIBS').split(), *get('LIBS').split(), '-lm']))"
)
_SCRIPT = """
cache = {n: b'held %06d' % n for n in range(3000)}
def dies():
    with open('told', 'w') as stream:
        print(*(id(one) for one in cache.values()), file=stream)
    import os
    os.abort()
dies()
"""
_PROGRAM = r"""
#include <Python.h>
int main(void) {
    Py_Initialize();
    return PyRun_SimpleString(SCRIPT);
}
"""


def test_a_stripped_program_with_a_static_interpreter(tmp_path: Path) -> None:
    source = tmp_path / "embeds.c"
    script = "".join(f'"{line}\\n"\n' for line in _SCRIPT.splitlines())
    source.write_text(_PROGRAM.replace("SCRIPT", script))
    program = tmp_path / "embeds"
    asked = subprocess.run(["/usr/bin/python3", "-c", _ASK], capture_output=True, text=True, check=True).stdout
    include, archive, *libraries = json.loads(asked)
    assert Path(archive).exists(), f"{archive} is not there (scripts/setup --tests installs its package)"
    how = (archive, *libraries, "-rdynamic", "-no-pie", "-s")
    words = ["gcc", "-O1", f"-I{include}", str(source), "-o", str(program), *how]
    subprocess.run(words, check=True)
    core = kernel_core(program, tmp_path)
    (thread,) = answers.by_name(answers.typed("pystack", core))["threads"]
    frames = [(frame["file"], frame["line"], frame["function"]) for frame in thread["frames"]]
    assert frames == [("<string>", 7, "dies"), ("<string>", 8, "<module>")]
    owners = find_owners(CoreFile(str(core)))
    told = (tmp_path / "told").read_text()
    held = [owners.above(int(at)) for at in told.split()]
    assert {owners.name_of(above[1]) if above is not None else "" for above in held} == {"__main__.cache"}


@pytest.mark.thorough("it needs Debian's Pythons")
@pytest.mark.parametrize("version", ["3.13", "3.14"])
def test_a_free_threaded_build_is_refused_in_words(version: str, tmp_path: Path) -> None:
    """The third word of _PyRuntime says so (Include/internal/pycore_debug_offsets.h: free_threaded)."""
    made = pythons.core(version, "stacks")
    runtime = made.target().lookup("_PyRuntime")
    assert runtime is not None
    place = made.place(runtime.address)
    assert place is not None
    data = bytearray(made.core.read_bytes())
    assert data[place : place + 8] == b"xdebugpy"
    data[place + 16] = 1
    (tmp_path / "core").write_bytes(data)
    target = CoreFile(str(tmp_path / "core"), sysroot=str(made.sysroot))
    with pytest.raises(UserError) as refused:
        answers.report(target, "pystack")
    assert "free-threaded build (without GIL): dmods does not read it" in refused.value.what
    assert any("free-threaded" in note for note in answers.answer(target, "findleaks")["notes"])
