"""An allocator that dmods does not know, taught to it by a folder on the search path, in gdb."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures import answers
from tests.allocators.stranger.test_stranger import HERE, KEPT, LEAKED, MORE_KEPT, MORE_LEAKED, PATH, dumped
from tests.corekit import compile_c
from tests.gdb.conftest import Gdb


def test_gdb_says_what_the_shell_says(gdb: Gdb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMODS_ALLOCATORS", str(PATH))
    program = compile_c(HERE / "bump.c", tmp_path / "bump", "-fno-builtin")
    first = dumped(program, tmp_path / "first", KEPT, LEAKED)
    last = dumped(program, tmp_path / "last", MORE_KEPT, MORE_LEAKED)
    lost = hex(last.blocks["direct"][0])
    lines = {
        "findleaks": [],
        "whatis": [lost],
        "walk": ["leak"],
        "heapsizes": [],
        "malloc_stats": [],
        "heapcheck": [],
        "types": [],
        "owners": [],
        "growth": [str(first.core), "--by", "size"],
    }
    asked = [
        word
        for name, words in lines.items()
        for word in ("-ex", "echo {cut}", "-ex", " ".join(["mdb", name, *words, "--json"]))
    ]
    done = gdb("-x", "heapcmds.py", last.core, *asked, DMODS_ALLOCATORS=str(PATH))
    found = [json.loads(part) for part in done.stdout.split("{cut}")[1:]]
    assert [one["command"] for one in found] == [*lines]
    for (name, words), inside in zip(lines.items(), found):
        given = [words[0], last.core, *words[1:]] if name == "growth" else [last.core, *words]
        outside = answers.typed(name, *given)
        assert inside["totals"] == outside["totals"], name
        assert [table["rows"] for table in inside["tables"]] == [table["rows"] for table in outside["tables"]], name
