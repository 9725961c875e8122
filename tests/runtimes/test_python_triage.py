"""Dead Python processes in Python's words: the stacks that faulthandler wrote, and the names of threads."""

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
    # A long path does not take the place of the frames: the command is printed without it.
    printed = " ".join(answers.printed("triage", *made.argv(), "--checks", "death").split())
    assert f"python: {line['python']}" in printed
    assert f"{len(truth) - 3} more (type: dmods pystack " in printed or f"{len(truth) - 3} more: pystack " in printed


@VERSIONS
def test_threads_have_the_names_of_threading(version: str) -> None:
    made = pythons.core(version, "stacks")
    target = made.target()
    lines = (line.split(" ", 1) for line in (made.folder / "names").read_text("utf-8").splitlines())
    truth = {int(ident): name for ident, name in lines if name != "MainThread"}
    assert len(truth) == 3
    assert set(truth.values()) > {"a waiter", "k\u00e4se"}
    idents = {thread.tid: thread.registers[target.arch.thread_pointer] for thread in target.threads()}
    rows = answers.by_name(answers.typed("pystack", *made.argv()))["threads"]
    assert {idents[row["thread"]]: row["python_name"] for row in rows if row["python_name"]} == truth
    assert " 'a waiter'\n" in answers.printed("pystack", *made.argv())
