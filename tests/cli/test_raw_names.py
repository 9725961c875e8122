"""Paths whose bytes are not UTF-8, in the shell: of a mapped file, of the program, of the core itself."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import pytest

from dmods.base.raw_names import in_json, printable, shell_line
from fixtures import answers
from tests.output.test_next_command import next_commands

_LOST = "50 buffers, 5200 bytes"


@pytest.mark.parametrize("command", ["findleaks", "triage", "maps", "suspects", "doctor"])
def test_the_answer_is_there(raw_core: Path, command: str) -> None:
    done = answers.dmods(command, raw_core)
    assert done.returncode == 0, done.stderr
    assert command != "findleaks" or _LOST in done.stdout
    assert "\\udc" not in done.stdout + done.stderr


def test_a_compressed_core_is_kept_under_a_plain_name(raw_core: Path, tmp_path: Path) -> None:
    packed = tmp_path / "core\udce9.gz"
    packed.write_bytes(gzip.compress(raw_core.read_bytes(), 1))
    assert _LOST in answers.dmods("findleaks", packed).stdout


def test_the_paths_have_the_replacement_character(raw_core: Path) -> None:
    place = answers.dmods("maps", raw_core, "-v").stdout
    assert "100%\ufffd" in place
    assert "prog\ufffd" in place


def test_json_is_valid_for_every_reader(raw_core: Path) -> None:
    """A lone surrogate is no Unicode character (RFC 8259, section 8.2): Python's reader takes it, others do not."""
    for command in ("triage", "maps"):
        answer = json.loads(answers.dmods(command, raw_core, "-v" if command == "maps" else "--json", "--json").stdout)
        text = json.dumps(answer, ensure_ascii=False)
        text.encode()  # raises for a lone surrogate
        assert "caf\ufffd 1/prog\ufffd" in text


def test_the_next_command_can_be_pasted(raw_core: Path) -> None:
    commands = next_commands(answers.dmods("triage", raw_core).stdout)
    assert commands
    assert str(raw_core.name.replace("\udce9", r"\351")) in commands[0]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = answers.finished("bash", "-c", commands[0], cwd=raw_core.parent, env=environment)
    assert done.returncode == 0, done.stderr
    assert "main" in done.stdout


def test_words_of_every_kind_come_back_from_a_shell() -> None:
    words = ["plain", "a b", "it's", "caf\udce9", "100%\udce9\\n 'x' $HOME", "\udcff\udc80"]
    done = answers.finished("bash", "-c", f"printf '%s\\0' {shell_line(words)} | od -An -v -tx1")
    assert bytes.fromhex(done.stdout.replace("\n", " ")) == b"".join(os.fsencode(word) + b"\0" for word in words)


def test_only_lone_surrogates_are_replaced_in_json() -> None:
    texts = ["\udce9", "\U0001f600", "\\ud800", "a\\\udce9", "\ud800", "plain"]
    assert json.loads(in_json(json.dumps(texts))) == ["\ufffd", "\U0001f600", "\\ud800", "a\\\ufffd", "\ufffd", "plain"]
    assert printable("\udce9\x1b[1m") == "\ufffd\\x1b[1m"
