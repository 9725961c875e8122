"""The entries of CPython's dictionaries (Include/internal/pycore_dict.h)."""

from __future__ import annotations

import struct
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.runtimes.python.memory import Objects

KEYS, VALUES = 32, 40  # ma_keys and ma_values in a dict
_MOST_SIZE = 40  # log2


class Keys(NamedTuple):
    """A table: where its first pair of key and value lies, the bytes between two of them, and how many are used."""

    start: int
    stride: int
    used: int


def keys_at(objects: Objects, address: int) -> Optional[Keys]:
    """Return the table at an address (PyDictKeysObject), or None where it cannot be read.

    Until 3.10 the keys have dk_size at 8 and their entries behind the indices at 40; from 3.11 on log2 of both sizes at
    8, the kind at 10, and the indices at 32. The hash of a key stands before it, but not where all keys are str.
    """
    head = objects.image.read(address, 40) if address else b""
    if len(head) != 40:
        return None
    if objects.version >= (3, 11):
        log_size, log_index, kind = head[8], head[9], head[10]
        if log_size > _MOST_SIZE or log_index > _MOST_SIZE + 8:
            return None
        count = struct.unpack_from("<Q", head, 24)[0]
        start, stride, skip = address + 32 + (1 << log_index), 24 if kind == 0 else 16, 8 if kind == 0 else 0
    else:
        size, count = struct.unpack_from("<Q", head, 8)[0], struct.unpack_from("<Q", head, 32)[0]
        if size > 1 << _MOST_SIZE:
            return None
        width = 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4 if size <= 0xFFFFFFFF else 8
        start, stride, skip = address + 40 + size * width, 24, 8
    return Keys(start + skip, stride, count)


def values_at(objects: Objects, address: int) -> Optional[int]:
    """Return where the first value of a dict lies that shares its keys with others (a split table); None for another.

    Four bytes and a gap come first since 3.13 (PyDictValues).
    """
    values = objects.words.at(address + VALUES)
    return (values & ~7) + (8 if objects.version >= (3, 13) else 0) if values else None


def entries(objects: Objects, address: int, most: int) -> list[tuple[int, int]]:
    """Return up to ``most`` (key, value) of a dict: addresses of objects. [] where its keys cannot be read."""
    words = objects.words
    keys, values = keys_at(objects, words.at(address + KEYS) or 0), values_at(objects, address)
    if keys is None:
        return []
    found = []
    for number in range(min(keys.used, most)):
        pair = words.many(keys.start + number * keys.stride, 2)
        if pair is None:
            break
        value = words.at(values + 8 * number) if values is not None else pair[1]
        if pair[0] and value:
            found.append((pair[0], value))
    return found
