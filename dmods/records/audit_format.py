"""The layout of the auditor's tables. Generated from audit/format.h by scripts/audit-format: do not edit."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

from dmods.base.dataclass import dataclass

MAGIC = b"DMODS-AUDIT-ROOT"
VERSION = 1
OFF = 0
STARTING = 1
RECORDING = 2
STOPPED = 3
NODE_TRUNCATED_BIT = 48
NODE_EXACT_BIT = 49
ALLOCATED = 1
FREED = 2
CLOCK_TICKS = 1
CLOCK_MONOTONIC = 2
RANGE_LIBRARY = 1
RANGE_RECORDS = 2
RANGE_STACKS = 3
RANGE_LOG = 4
RANGE_OTHER = 5
RANGE_BOOTSTRAP = 6
MAPPING_MMAP = 1
MAPPING_MREMAP = 2
MAPPING_BRK = 3
MAPPING_SHMAT = 4
GUARDS = 1
SAMPLED = 2
MAPS = 4


@dataclass(frozen=True)
class Thread:
    """``struct dmods_audit_thread``: 64 bytes."""

    tid: int
    pid: int
    pthread: int
    time: int
    name: bytes


def _thread(values: Iterator[Any]) -> Thread:
    return Thread(*islice(values, 5))


THREAD = struct.Struct("<2I2Q16s24x")


def read_thread(data: bytes, at: int = 0) -> Thread:
    """Return the structure that begins at an offset."""
    return _thread(iter(THREAD.unpack_from(data, at)))


@dataclass(frozen=True)
class Range:
    """``struct dmods_audit_range``: 24 bytes."""

    start: int
    end: int
    kind: int


def _range(values: Iterator[Any]) -> Range:
    return Range(*islice(values, 3))


RANGE = struct.Struct("<2QI4x")


def read_range(data: bytes, at: int = 0) -> Range:
    """Return the structure that begins at an offset."""
    return _range(iter(RANGE.unpack_from(data, at)))


@dataclass(frozen=True)
class Mapping:
    """``struct dmods_audit_mapping``: 40 bytes."""

    start: int
    end: int
    time: int
    stack: int
    thread: int
    kind: int
    protection: int


def _mapping(values: Iterator[Any]) -> Mapping:
    return Mapping(*islice(values, 7))


MAPPING = struct.Struct("<3Q4I")


def read_mapping(data: bytes, at: int = 0) -> Mapping:
    """Return the structure that begins at an offset."""
    return _mapping(iter(MAPPING.unpack_from(data, at)))


@dataclass(frozen=True)
class Options:
    """``struct dmods_audit_options``: 304 bytes."""

    text: bytes
    flags: int
    frames: int
    sample: int
    log: int
    contents: int
    redzone: int
    redzone_byte: int
    fresh: int
    freed: int


def _options(values: Iterator[Any]) -> Options:
    return Options(*islice(values, 10))


@dataclass(frozen=True)
class Moment:
    """``struct dmods_audit_moment``: 24 bytes."""

    ticks: int
    monotonic: int
    realtime: int


def _moment(values: Iterator[Any]) -> Moment:
    return Moment(*islice(values, 3))


@dataclass(frozen=True)
class Clock:
    """``struct dmods_audit_clock``: 88 bytes."""

    kind: int
    shift: int
    start: Moment
    latest_index: int
    latest: tuple[Moment, Moment]


def _clock(values: Iterator[Any]) -> Clock:
    return Clock(
        next(values),
        next(values),
        _moment(values),
        next(values),
        (_moment(values), _moment(values)),
    )


@dataclass(frozen=True)
class Bits:
    """``struct dmods_audit_bits``: 4 bytes."""

    word: int
    shift: int
    width: int


def _bits(values: Iterator[Any]) -> Bits:
    return Bits(*islice(values, 3))


@dataclass(frozen=True)
class Shadow:
    """``struct dmods_audit_shadow``: 64 bytes."""

    top: int
    top_shift: int
    top_count: int
    middle_shift: int
    middle_count: int
    granule_shift: int
    leaf_records: int
    record_size: int
    offset_shift: int
    live: Bits
    offset: Bits
    stack: Bits
    thread: Bits
    size: Bits
    time: Bits


def _shadow(values: Iterator[Any]) -> Shadow:
    return Shadow(
        next(values),
        next(values),
        next(values),
        next(values),
        next(values),
        next(values),
        next(values),
        next(values),
        next(values),
        _bits(values),
        _bits(values),
        _bits(values),
        _bits(values),
        _bits(values),
        _bits(values),
    )


@dataclass(frozen=True)
class Table:
    """``struct dmods_audit_table``: 32 bytes."""

    chunks: int
    chunk_shift: int
    chunk_count: int
    entry_size: int
    count: int


def _table(values: Iterator[Any]) -> Table:
    return Table(*islice(values, 5))


@dataclass(frozen=True)
class Ring:
    """``struct dmods_audit_ring``: 32 bytes."""

    entries: int
    capacity: int
    entry_size: int
    next: int


def _ring(values: Iterator[Any]) -> Ring:
    return Ring(*islice(values, 4))


@dataclass(frozen=True)
class Array:
    """``struct dmods_audit_array``: 24 bytes."""

    entries: int
    entry_size: int
    count: int


def _array(values: Iterator[Any]) -> Array:
    return Array(*islice(values, 3))


@dataclass(frozen=True)
class Figures:
    """``struct dmods_audit_figures``: 96 bytes."""

    bytes_mapped: int
    lost_records: int
    lost_stacks: int
    truncated_stacks: int
    unknown_frees: int
    forks: int
    generations: int


def _figures(values: Iterator[Any]) -> Figures:
    return Figures(*islice(values, 7))


@dataclass(frozen=True)
class Root:
    """``struct dmods_audit_root``: 1064 bytes."""

    magic: bytes
    version: int
    size: int
    state: int
    pid: int
    options: Options
    clock: Clock
    shadow: Shadow
    stacks: Table
    threads: Table
    log: Ring
    contents: Ring
    ranges: Array
    figures: Figures
    status: bytes
    status_address: int
    status_stack: int
    status_thread: int
    freed: Bits
    tls_offset: int
    tls_size: int
    maps: Array
    lost_maps: int


def _root(values: Iterator[Any]) -> Root:
    return Root(
        next(values),
        next(values),
        next(values),
        next(values),
        next(values),
        _options(values),
        _clock(values),
        _shadow(values),
        _table(values),
        _table(values),
        _ring(values),
        _ring(values),
        _array(values),
        _figures(values),
        next(values),
        next(values),
        next(values),
        next(values),
        _bits(values),
        next(values),
        next(values),
        _array(values),
        next(values),
    )


ROOT = struct.Struct("<16s4I256s2I3QIB3x4I11Q8I3Bx3Bx3Bx3Bx3Bx3BxQ3I4x2Q3I4x3QI4x3QI4x2QI4x8Q40x256sQ2I3B5xq2QI4x2Q")


def read_root(data: bytes, at: int = 0) -> Root:
    """Return the structure that begins at an offset."""
    return _root(iter(ROOT.unpack_from(data, at)))
