"""`%NAME` at drgn's prompt, through the plugin that an install registers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import dmods.command
from fixtures import answers
from tests.corekit import Crash
from tests.drgn.prompt import Prompt
from tests.output.test_next_command import next_commands


def alone(*words: object) -> list[str]:
    """Return the lines that the standalone form prints."""
    return answers.printed(*words).splitlines()


@pytest.fixture
def prompt(crashed: Crash, tmp_path: Path) -> Iterator[Prompt]:
    with Prompt(tmp_path, tmp_path, "-c", crashed.core) as opened:
        yield opened


def test_the_install_registers_the_plugin() -> None:
    group = "drgn.plugins"
    found = entry_points(group=group) if sys.version_info >= (3, 10) else entry_points()[group]
    assert [entry.value for entry in found if entry.name == "dmods"] == ["drgnext.plugin"]


def test_a_command(prompt: Prompt, crashed: Crash) -> None:
    assert prompt.ask("%maps") == alone("maps", crashed.core)
    assert prompt.ask("%maps --json") == alone("maps", crashed.core, "--json")


def test_pipes_and_redirections(prompt: Prompt, crashed: Crash, tmp_path: Path) -> None:
    stacks = alone("mdb", crashed.core, "::walk thread | ::findstack")
    assert prompt.ask("%mdb ::walk thread | ::findstack | head -n 2") == stacks[:2]
    assert prompt.ask("%mdb ::walk thread | findstack > stacks.txt") == []
    assert (tmp_path / "stacks.txt").read_text().splitlines() == stacks
    assert prompt.ask("%mdb main::whatis") == alone("whatis", crashed.core, "main")
    assert prompt.ask("%mdb prog['main']::whatis") == alone("whatis", crashed.core, "main")
    assert prompt.ask("%mdb ::nonesuch")[0] == "dmods: there is no command 'nonesuch'"


def test_addresses_are_expressions_of_the_prompts(prompt: Prompt, crashed: Crash) -> None:
    prompt.ask("here = prog['main'].address_of_()")
    expected = alone("whatis", crashed.core, "main")
    assert prompt.ask("%whatis here") == expected
    assert prompt.ask("%whatis 'here.value_() + 0'") == expected
    assert prompt.ask('%whatis prog["main"]') == expected
    prompt.ask("b = here; exit = here")  # a number in hex, and a function of libc
    assert prompt.ask("%whatis b") == prompt.ask("%whatis exit") == expected


def test_errors_are_two_lines_and_the_prompt_goes_on(prompt: Prompt, crashed: Crash) -> None:
    said = prompt.ask("%whatis")
    assert len(said) == 2
    assert "ADDR is missing" in said[0]
    assert len(prompt.ask("%trapframe")) == 2
    assert prompt.ask("%maps") == alone("maps", crashed.core)


def test_help(prompt: Prompt) -> None:
    said = prompt.ask("%findleaks --help")
    assert said[0].startswith("usage: findleaks ")
    assert any("--fail-on-leak" in line for line in said)


def test_every_command_is_registered(prompt: Prompt) -> None:
    prompt.ask("from drgn.commands import DEFAULT_COMMAND_NAMESPACE as n")
    names = dmods.command.command_names()
    assert {"findleaks", "memstat"} <= set(names)
    for name in names:
        said = prompt.ask(f"c = n.lookup(prog, '{name}'); print(c.description()); print(c.format_usage())")
        command = dmods.command.find_command(name)
        assert said[0] == command.summary
        assert said[1].startswith(name)


def test_ctrl_c_stops_a_command_and_the_prompt_goes_on(prompt: Prompt, crashed: Crash) -> None:
    prompt.ask("import time, dmods.commands.maps as m")
    prompt.ask("before = m.COMMAND.run")
    prompt.ask("object.__setattr__(m.COMMAND, 'run', lambda t, a: (print('at work', flush=True), time.sleep(3600)))")
    prompt.type("%maps\n")
    prompt.until("at work\r\n")
    prompt.type("\x03")
    assert "interrupted" in prompt.until(">>> ")
    prompt.ask("object.__setattr__(m.COMMAND, 'run', before)")
    assert prompt.ask("%maps") == alone("maps", crashed.core)


def test_a_core_that_changed_is_read_anew(crashed: Crash, gcored: Crash, tmp_path: Path) -> None:
    core = tmp_path / "core"
    core.write_bytes(crashed.core.read_bytes())
    with Prompt(tmp_path, tmp_path, "-c", core) as prompt:
        assert prompt.ask("%maps") == alone("maps", crashed.core)
        new = tmp_path / "new"
        new.write_bytes(gcored.core.read_bytes())
        os.replace(new, core)
        assert prompt.ask("%maps") == alone("maps", gcored.core)
        core.unlink()
        said = prompt.ask("%maps")
        assert len(said) == 2
        assert "no longer there" in said[0]


def test_tab_completes_names_options_and_choices(prompt: Prompt, crashed: Crash) -> None:
    assert prompt.ask("%memst\t --help")[0].startswith("usage: memstat ")
    assert prompt.ask("%map\t --js\t") == alone("maps", crashed.core, "--json")
    assert prompt.ask("%walk mappi\t") == alone("walk", crashed.core, "mapping")
    assert prompt.ask("prog.core_dump_pa\t") == [repr(str(crashed.core))], "drgn's own completer is still there"


def test_help_at_the_prompt(prompt: Prompt) -> None:
    assert prompt.ask("%help findleaks") == prompt.ask("%findleaks --help")
    assert prompt.ask("%help findleaks")[0].startswith("usage: findleaks ")
    said = "\n".join(prompt.ask("%help"))
    for name in dmods.command.command_names():
        assert f" {name} " in said
    assert prompt.ask("%help findleak")[1].strip().startswith("did you mean findleaks?")


def test_the_next_command_is_one_of_the_prompts(prompt: Prompt) -> None:
    commands = next_commands("\n".join(prompt.ask("%triage")))
    assert commands
    assert all(command.startswith("%") for command in commands)
    assert prompt.ask(commands[0])
