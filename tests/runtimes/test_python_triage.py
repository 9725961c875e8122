"""`triage` of a Python process has the Python frames that faulthandler wrote before the process died."""

from __future__ import annotations

import pytest

from fixtures import answers, pythons

VERSIONS = pytest.mark.parametrize(
    "version",
    [
        "host",
        *(pytest.param(each, marks=pytest.mark.thorough("it needs Debian's Pythons")) for each in pythons.VERSIONS),
    ],
)


@VERSIONS
def test_triage_names_the_innermost_frames(version: str) -> None:
    made = pythons.core(version, "stacks")
    target = made.target()
    truth = made.stacks()[target.threads()[0].registers[target.arch.thread_pointer]]
    (line,) = (row for row in answers.by_name(answers.typed("triage", *made.argv(), "--checks", "death"))["crash"])
    told = line["python"].split(", called by ")
    assert len(told) == 3 < len(truth)
    for text, (file, number, function) in zip(told, truth):
        name, _, place = text.partition(" [")
        assert name.rpartition(".")[2] == function  # faulthandler has no qualified names
        assert place.startswith(f"{'/'.join(file.rsplit('/', 2)[-2:])}:{number}]")
    assert told[-1].endswith(f", and {len(truth) - 3} more")
    assert "(type: dmods pystack " in answers.printed("triage", *made.argv(), "--checks", "death")
