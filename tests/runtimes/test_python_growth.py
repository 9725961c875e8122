"""growth by owner with the variables of CPython, compared with the ledger of the program."""

from __future__ import annotations

import pytest

from fixtures import answers, growths, pythons

VERSIONS = pytest.mark.parametrize(
    "version",
    [
        "host",
        *(pytest.param(each, marks=pytest.mark.thorough("it needs Debian's Pythons")) for each in pythons.VERSIONS),
    ],
)

_MOST_OBJECT = 512  # bytes, with what an object leads to


@VERSIONS
def test_variables_grow_as_the_program_says(version: str) -> None:
    run = growths.in_python(version, "variables_grow")
    under = ("--sysroot", run.sysroot) if run.sysroot is not None else ()
    answer = answers.typed("growth", *run.cores, "--by", "owner", "--top", "1000000", *under)
    rows = {row["key"]: row for row in answers.by_name(answer)["growth"]}
    (local,) = [key for key in rows if key.endswith(", local 'rows'")]
    assert "program.py main in thread " in local
    # In 3.10, a word that was left behind a lock of C owns two objects: nobody promises those.
    missing = 2 if version == "3.10" else 0
    for kind in run.kinds:
        row = rows[local if kind == "main:rows" else kind]
        for turn in range(3):
            count, size = run.ledger[turn, kind]
            assert count - missing <= row["each_count"][turn] <= count, (kind, turn)
            assert size - missing * _MOST_OBJECT <= row["each_bytes"][turn] <= size, (kind, turn)
    first = answers.by_name(answer)["findings"][0]["finding"]
    assert first.startswith("What app.store.cache holds grew by ")
