"""growth in gdb: the loaded core is the newest, the older ones are the arguments."""

from __future__ import annotations

import json

import pytest

from tests.commands.test_growth import Run, grown, played
from tests.gdb.conftest import Gdb


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return played(tmp_path_factory.mktemp("grows"))


def test_gdb_says_what_the_shell_says(gdb: Gdb, run: Run) -> None:
    first, middle, last = run.cores
    done = gdb(
        "-x", "heapcmds.py", last, "-ex", "echo {cut}", "-ex", f"growth {first} {middle} --by size --top 1000000 --json"
    )
    answer = json.loads(done.stdout.partition("{cut}")[2])
    shell = grown(run.cores, "--by", "size")
    assert answer["totals"] == shell["totals"]
    assert [table["rows"] for table in answer["tables"]] == [table["rows"] for table in shell["tables"]]
