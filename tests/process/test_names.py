"""Names that dmods prints lead back to the address. Shorter names do so where they are not ambiguous."""

from __future__ import annotations

import random
import subprocess
from functools import cache
from typing import Union

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UsageError
from dmods.process.addresses import AmbiguousName, describe_code
from dmods.target import Module
from fixtures import audited, cores
from fixtures.truth import Truth

MOST = 200  # symbols that are tried for each module


@cache
def wrapped() -> tuple[CoreFile, Truth]:
    made = audited.take("wrapped")
    return CoreFile(str(made.core)), made.truth


def functions(module: Module) -> list[tuple[int, int]]:
    """Return (address in the process, size) of a module's functions, as nm knows them."""
    assert module.file is not None
    found = set()
    for option in ("--defined-only", "--dynamic"):
        command = ["nm", option, "--print-size", "--format=posix", module.file]
        lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
        for line in lines:
            words = line.split()
            if len(words) == 4 and words[1] in "tTwWiu" and int(words[3], 16):
                found.add((int(words[2], 16) + module.bias, int(words[3], 16)))
    return sorted(found)


def meant(target: CoreFile, text: str) -> Union[int, str]:
    """Return the address that a name means, or the list of addresses that it may mean."""
    try:
        return target.evaluate(text)
    except AmbiguousName as error:
        return error.how


@pytest.mark.quick("oxide-oxide-200", "wrapped-libc.so-200")
@pytest.mark.parametrize(
    ("program", "name", "least"),
    [
        ("wrapped", "wrapped", MOST),
        pytest.param("wrapped", "libstdc++", MOST, marks=pytest.mark.thorough("another library is tested")),
        ("wrapped", "libc.so", MOST),
        ("oxide", "oxide", MOST),
    ],
)
def test_what_is_printed_leads_back(program: str, name: str, least: int) -> None:
    target = wrapped()[0] if program == "wrapped" else CoreFile(str(cores.take(program).core))
    module = next(module for module in target.modules() if module.name.startswith(name))
    chosen = random.Random(1603)
    places = functions(module)
    places = chosen.sample(places, min(MOST, len(places)))
    assert len(places) >= least
    ambiguous = tried = 0
    for start, size in places:
        for address in {start, start + chosen.randrange(size)}:
            text = describe_code(target, address)
            found = meant(target, text)
            tried += 1
            if isinstance(found, str):
                ambiguous += 1
                symbol = target.symbol_at(address)
                assert symbol is not None
                assert f"{symbol.address:#x} " in found or found.endswith(" more"), text
                continue
            # Without an offset, a function's name means neither its old version nor a part split off it.
            assert found == address or (address == start and describe_code(target, found) == text), text
    # Half of libstdc++'s functions are overloads, constructors and destructors, which share printed names.
    assert ambiguous < tried * (0.6 if name == "libstdc++" else 0.1)


def test_full_names_lead_to_the_functions_that_the_program_knows() -> None:
    target, truth = wrapped()
    assert len(truth.facts) == 9
    for name, address in truth.facts.items():
        assert target.evaluate(name) == address
        assert target.evaluate(f"wrapped`{name}+0x1") == address + 1
        assert target.evaluate(f" {name} + 2 ") == address + 2


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("shrink", "shop::Basket<long>::shrink(long)"),
        ("Basket::shrink", "shop::Basket<long>::shrink(long)"),
        ("shop::Basket<long>::shrink", "shop::Basket<long>::shrink(long)"),
        ("shop::Basket::shrink(long)", "shop::Basket<long>::shrink(long)"),
        ("Basket<int>::grow", "shop::Basket<int>::grow(int)"),
        ("grow(long)", "shop::Store::grow(long)"),
        ("Store::open", "shop::Store::open()"),
        ("shop::Store::close", "shop::Store::close[abi:v2]()"),
        ("operator<", "shop::Store::operator<(shop::Store const&) const"),
        ("level<7>", "level<7>()"),
        ("void level<7>()", "level<7>()"),
        ("wrapped`shrink", "shop::Basket<long>::shrink(long)"),
        ("_ZN4shop5Store4openEv", "shop::Store::open()"),
        ("shop::...::shrink(long)", "shop::Basket<long>::shrink(long)"),
    ],
)
def test_short_names(text: str, name: str) -> None:
    target, truth = wrapped()
    assert target.evaluate(text) == truth.facts[name]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Store::grow", ["shop::Store::grow(int)", "shop::Store::grow(long)"]),
        ("shop::Store::grow+0x1", ["shop::Store::grow(int)", "shop::Store::grow(long)"]),
        ("Basket::grow", ["shop::Basket<int>::grow(int)", "shop::Basket<long>::grow(int)"]),
    ],
)
def test_ambiguous_names_are_listed(text: str, names: list[str]) -> None:
    target, truth = wrapped()
    with pytest.raises(AmbiguousName) as error:
        target.evaluate(text)
    assert f"{len(names)} symbols" in error.value.what
    for name in names:
        assert f"{truth.facts[name]:#x} wrapped`{name}" in error.value.how
    assert "\n" not in error.value.how


def test_an_offset_that_one_function_alone_has_decides() -> None:
    """Split parts and overloads have one printed name. Only one of them may be large enough."""
    target, truth = wrapped()
    sizes = {}
    for name in ("shop::Store::grow(int)", "shop::Store::grow(long)"):
        symbol = target.symbol_at(truth.facts[name])
        assert symbol is not None
        sizes[name] = symbol.size
    smaller, larger = sorted(sizes, key=lambda name: sizes[name])
    assert sizes[smaller] < sizes[larger]
    offset = sizes[larger] - 1
    assert target.evaluate(f"shop::Store::grow+{offset:#x}") == truth.facts[larger] + offset


@pytest.mark.parametrize(
    "text", ["row", "shop::grow(char)", "shop", "shop::", "::", "operator", "grow<", "level<0>", "..."]
)
def test_names_that_no_symbol_has(text: str) -> None:
    target, _truth = wrapped()
    with pytest.raises(UsageError):
        target.evaluate(text)
