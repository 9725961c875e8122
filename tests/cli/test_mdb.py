"""mdb's language: how a line is parsed, and `dmods mdb` and `-` from outside."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import pytest

from dmods.cli.mdb import Step, has_pipe, mask_pipes, parse
from dmods.errors import UsageError
from fixtures import answers, audited

NAMES = ("bufctl", "dmods", "findleaks", "walk", "whatis")


@pytest.mark.parametrize(
    ("line", "steps"),
    [
        ("::findleaks", [Step("findleaks")]),
        (" ::findleaks -d  --top 3 ", [Step("findleaks", "-d  --top 3")]),
        ("0x7f00::whatis", [Step("whatis", "", "0x7f00")]),
        ("$rax + 8 :: whatis -n 1", [Step("whatis", "-n 1", "$rax + 8")]),
        ("ns::walk::whatis", [Step("whatis", "", "ns::walk")]),
        ("a::b::c::whatis -v", [Step("whatis", "-v", "a::b::c")]),
        ("walk::whatis", [Step("whatis", "", "walk")]),
        ("whatis ns::walk", [Step("whatis", "ns::walk")]),
        ("(a | b)::whatis", [Step("whatis", "", "(a | b)")]),
        ("whatis a|b", [Step("whatis", "a|b")]),
        ("::walk leak | ::bufctl -v|::whatis", [Step("walk", "leak"), Step("bufctl", "-v"), Step("whatis")]),
        ("walk log | bufctl", [Step("walk", "log"), Step("bufctl")]),
        ("::whatis 'a | whatis'", [Step("whatis", "'a | whatis'")]),
        ("::dcmds", [Step("dmods", "-l")]),
        ("::walkers", [Step("walk")]),
        ("::help walk", [Step("help", "walk")]),
        ("::nonesuch 1", [Step("nonesuch", "1")]),
        ("nonesuch 1", [Step("nonesuch", "1")]),
    ],
)
def test_how_a_line_is_read(line: str, steps: list[Step]) -> None:
    assert parse(line, NAMES) == steps
    assert has_pipe(line, NAMES) == (len(steps) > 1)


@pytest.mark.parametrize("line", ["", "0x10", "12 34"])
def test_what_is_not_a_line(line: str) -> None:
    with pytest.raises(UsageError):
        parse(line, NAMES)


def test_only_pipes_between_commands_are_masked() -> None:
    assert mask_pipes("::walk leak | ::bufctl | sort | uniq", NAMES, "#") == "::walk leak # ::bufctl | sort | uniq"


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a core of the leak tutorial with allocation records."""
    return str(audited.tutorial(tmp_path_factory.mktemp("tutorial")))


def dmods(*words: str, stdin: str = "") -> answers.Finished:
    return answers.dmods(*words, stdin=None, input=stdin)


def rows(*words: str, stdin: str = "") -> list[dict[str, Any]]:
    done = dmods(*words, stdin=stdin)
    assert done.returncode == 0, done.stderr
    (table,) = answers.by_name(json.loads(done.stdout)).values()
    return table


def test_a_pipe_gives_what_the_commands_give_one_by_one(core: str) -> None:
    bufctls = dmods("walk", core, "leak").stdout.split()
    assert len(bufctls) == 3
    each = [rows("bufctl", core, bufctl, "--json")[0] for bufctl in bufctls]
    assert rows("mdb", core, "::walk leak | ::bufctl --json") == each
    assert rows("bufctl", core, "-", "--json", stdin="\n".join(bufctls)) == each
    # The bufctls of the first answers are addresses for the second as well.
    assert rows("mdb", core, "::walk leak | ::bufctl | ::bufctl --json") == each


def test_the_log_through_a_pipe_of_the_shell() -> None:
    core = str(audited.take("callers", "audit,log=10000").core)
    walked = rows("walk", core, "log", "--json")
    assert len(walked) > 40
    found = rows("bufctl", core, "-", "--json", stdin=dmods("walk", core, "log").stdout)
    assert [(row["addr"], row["bufaddr"], row["timestamp"], row["thread"]) for row in found] == [
        (row["address"], row["buffer"], row["timestamp"], row["thread"]) for row in walked
    ]


def test_the_headings_stand_once(core: str) -> None:
    lines = dmods("mdb", core, "::walk leak | ::bufctl").stdout.splitlines()
    assert len(lines) == 4
    assert lines[0].split()[:2] == ["ADDR", "BUFADDR"]
    alone = [dmods("bufctl", core, bufctl).stdout.splitlines() for bufctl in dmods("walk", core, "leak").stdout.split()]
    assert [line.split() for line in lines[1:]] == [one[1].split() for one in alone]


def test_answers_of_more_than_one_table_follow_one_another(core: str) -> None:
    bufctls = dmods("walk", core, "leak").stdout.split()
    alone = [dmods("bufctl_audit", core, bufctl).stdout for bufctl in bufctls]
    assert dmods("bufctl_audit", core, "-", stdin="\n".join(bufctls)).stdout == "\n".join(alone)
    assert dmods("mdb", core, "::walk leak | ::bufctl_audit").stdout == "\n".join(alone)


def test_an_address_before_the_dcmd(core: str) -> None:
    for address, line in (("main", "main::whatis"), ("main+0x1", "main+0x1 ::whatis"), ("main", "::whatis main")):
        assert dmods("mdb", core, line).stdout == dmods("whatis", core, address).stdout
    assert dmods("mdb", core, "main::whatis --json").stdout == dmods("whatis", core, "main", "--json").stdout


def test_the_first_word_of_a_line_is_the_address(core: str) -> None:
    table = dmods("bufctl", core, "-", stdin=dmods("walk", core, "leak").stdout).stdout.splitlines()[1:]
    assert rows("bufctl", core, "-", "--json", stdin="\n\n".join(table)) == rows(
        "mdb", core, "::walk leak | ::bufctl --json"
    )


def test_an_address_without_an_answer_is_a_note(core: str) -> None:
    bufctl = dmods("walk", core, "leak").stdout.split()[0]
    done = dmods("bufctl", core, "-", stdin=f"0x10\n{bufctl}\nnonsense\n")
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 2
    assert "0x10 is neither" in done.stderr
    assert "nonsense" in done.stderr
    many = dmods("bufctl", core, "-", stdin="\n".join([bufctl, *map(str, range(1, 1001))]))
    assert "992 more addresses have no answer" in many.stderr
    alone = dmods("bufctl", core, "-", stdin="0x10\n")
    assert (alone.returncode, alone.stdout) == (2, "")
    assert alone.stderr == dmods("bufctl", core, "0x10").stderr


@pytest.mark.parametrize(
    ("line", "status", "what"),
    [
        ("::nonesuch", 2, "no command 'nonesuch'"),
        ("findleak", 2, "did you mean findleaks?"),
        ("0x10::maps", 2, "maps takes no address"),
        ("::maps | ::whatis", 2, "maps gives no addresses"),
        ("::whatis", 2, "ADDR is missing"),
        ("::memstat", 1, "for kernels"),
        ("::walk nonesuch | ::whatis", 2, "nonesuch"),
    ],
)
def test_what_the_user_must_mend_is_two_lines(core: str, line: str, status: int, what: str) -> None:
    done = dmods("mdb", core, line)
    assert (done.returncode, done.stdout) == (status, "")
    assert len(done.stderr.splitlines()) == 2
    assert what in done.stderr


def test_lines_from_standard_input(core: str) -> None:
    """Commands come from stdin, as in `echo ::findleaks | mdb core`. A wrong line does not end the others."""
    done = dmods("mdb", core, stdin="::findleaks\n\n::nonesuch\nmain::whatis")
    assert done.returncode == 2
    assert "no command 'nonesuch'" in done.stderr
    assert done.stdout == dmods("findleaks", core).stdout + dmods("whatis", core, "main").stdout
    assert dmods("mdb", core, stdin="::findleaks --fail-on-leak\n::maps").returncode == 3


def test_help_and_the_lists(core: str) -> None:
    assert dmods("mdb", core, "::dcmds").stdout == dmods("dmods", "-l").stdout
    assert dmods("mdb", core, "::walkers").stdout == dmods("walk", core).stdout
    assert "ADDR::NAME" in dmods("mdb", core, "::help").stdout
    assert dmods("mdb", core, "::help bufctl").stdout.startswith("usage: bufctl ")


def test_a_reader_that_has_seen_enough(core: str) -> None:
    line = f"{shlex.quote(sys.executable)} -m dmods mdb {core} '::walk mapping | ::whatis' | head -n 1"
    done = answers.finished("bash", "-o", "pipefail", "-c", line, cwd=answers.ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
