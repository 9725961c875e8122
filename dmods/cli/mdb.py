"""mdb's own command language: ``ADDR::whatis``, ``::walk leak | ::bufctl_audit``.

This module only reads the language. dmods/cli/pipeline.py runs what was read, and each front end gives it a target.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from dmods.base.dataclass import dataclass
from dmods.base.regex import regex
from dmods.errors import UsageError

# mdb's own names for things that dmods has under other names.
ALIASES = {"dcmds": ("dmods", "-l"), "walkers": ("walk", "")}
HELP = "help"
_DCMD = regex(r"::\s*(?P<name>[A-Za-z_]\w*)(?=\s|$|\|)")
_WORD = regex(r"(?P<name>[A-Za-z_]\w*)(?=\s|$|\|)")


@dataclass(frozen=True)
class Step:
    """One dcmd of a pipeline: ``ADDRESS::NAME ARGUMENTS``. ``address`` is "" where none was given."""

    name: str
    arguments: str = ""
    address: str = ""


def parse(text: str, names: Collection[str]) -> list[Step]:
    """Return the steps of a pipeline. `names` are the commands that exist. Raises UsageError.

    The ``::`` may be left out where no address stands before it: ``walk log | bufctl``.
    """
    known = {*names, *ALIASES, HELP}
    ends = [*_pipes(text, known), len(text)]
    starts = [0, *(end + 1 for end in ends)]
    return [_step(text[start:end], known) for start, end in zip(starts, ends)]


def has_pipe(text: str, names: Collection[str]) -> bool:
    """Return whether `text` has a pipe that leads to another command, and not to the shell or a bitwise "or"."""
    return any(True for _pipe in _pipes(text, {*names, *ALIASES, HELP}))


def mask_pipes(text: str, names: Collection[str], mask: str) -> str:
    """Return `text` with `mask` for each pipe that leads to another command. The shell's own pipes stay."""
    characters = list(text)
    for place in _pipes(text, {*names, *ALIASES, HELP}):
        characters[place] = mask
    return "".join(characters)


def _pipes(text: str, known: Collection[str]) -> Iterator[int]:
    """Yield the place of each ``|`` that has a command behind it, outside quotes."""
    place = 0
    while place < len(text):
        character = text[place]
        if character in "'\"":
            closed = text.find(character, place + 1)
            place = closed if closed >= 0 else place
        elif character == "|":
            rest = text[place + 1 :].lstrip()
            word = _WORD.match(rest)
            if _DCMD.match(rest) or (word and word["name"] in known):
                yield place
        place += 1


def _step(text: str, known: Collection[str]) -> Step:
    text = text.strip()
    word = _WORD.match(text)
    if word and word["name"] in known:
        return _aliased(word["name"], text[word.end() :].strip(), "")
    found = list(_DCMD.finditer(text))
    # An address may hold "::" too (C++, Rust): the dcmd is the first name that is a command.
    dcmd = next((each for each in found if each["name"] in known), found[0] if found else None)
    if dcmd is None and word:
        return Step(word["name"], text[word.end() :].strip())  # a misspelt name, which the front end reports
    if dcmd is None:
        raise UsageError(f"there is no command in {text!r}", "write ::NAME or ADDR::NAME; `::dcmds` lists the commands")
    return _aliased(dcmd["name"], text[dcmd.end() :].strip(), text[: dcmd.start()].strip())


def _aliased(name: str, arguments: str, address: str) -> Step:
    name, first = ALIASES.get(name, (name, ""))
    return Step(name, f"{first} {arguments}".strip(), address)
