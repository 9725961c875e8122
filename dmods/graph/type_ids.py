"""Short names for kinds and types: a letter and the first digits of a 64-bit number, as many as tell them apart."""

from __future__ import annotations

from collections.abc import Iterable

_LEAST, _ALL = 6, 17  # characters, with the letter


def kind_id(number: int) -> str:
    """Return the whole name of a kind."""
    return f"s{number:016x}"


def type_id(text: str) -> str:
    """Return the whole name of a type from debug information."""
    from hashlib import blake2b  # it brings OpenSSL: 3 ms

    return f"t{blake2b(text.encode(), digest_size=8).hexdigest()}"


def short_length(names: Iterable[str]) -> int:
    """Return how many characters tell all of the names apart."""
    different = set(names)
    lengths = range(_LEAST, _ALL)
    return next((n for n in lengths if len({name[:n] for name in different}) == len(different)), _ALL)


def named_so(short: str, names: Iterable[str]) -> set[str]:
    """Return the name that `short` means, the whole or its beginning; empty where it means none, or several."""
    found = {name for name in names if name.startswith(short)} if len(short) >= _LEAST else set()
    return found if len(found) == 1 else set()
