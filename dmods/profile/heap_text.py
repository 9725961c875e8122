"""Write heap profiles in jemalloc's text, for jeprof, and in gperftools' text, for google-pprof.

Both hold addresses, and their readers look up the symbols. The texts of samplers hold what was sampled, not what it
stands for: the readers scale it. So nothing is scaled here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from dmods.errors import UsageError
from dmods.profile.model import ALLOC_OBJECTS, ALLOC_SPACE, Profile, Sample
from dmods.profile.view import View

#: jeprof --base and google-pprof --base subtract by address. They are wrong where programs are loaded anywhere.
HOW_TO_COMPARE = "name the file x.pb.gz (for `go tool pprof`), x.folded or x.html"
_SHIFT = 8  # 1 << SC_LG_TINY_MIN: jemalloc counts eighths of blocks (src/prof_data.c, prof_unbias_map_init)


def text(view: View) -> Iterator[str]:
    """Yield the text in pieces. It is jemalloc's where jemalloc recorded the profile, else gperftools'.

    Raises UsageError where there are no code addresses, or for a difference.
    """
    profile = view.profile
    if any(sample.raw is None for sample in profile.samples):
        if view.compared:
            raise UsageError("a .heap file has no negative numbers, so it holds no difference", HOW_TO_COMPARE)
        raise UsageError(f"{profile.source} has no stacks of code", "name the file x.pb.gz, x.folded or x.html")
    rows = _rows(view)
    yield from (_jemalloc if profile.jemalloc else _gperftools)(profile, rows)
    yield "\nMAPPED_LIBRARIES:\n"
    for start, end, flags, offset, path in profile.mapped:
        clean = path.replace("\n", "\\012")  # as the kernel writes it (fs/seq_file.c, mangle_path)
        yield f"{start:08x}-{end:08x} {flags}p {offset:08x} 00:00 0 {clean}\n"


def _rows(view: View) -> Mapping[tuple[int, ...], list[Sample]]:
    rows: dict[tuple[int, ...], list[Sample]] = {}
    for sample in view.samples():
        if sample.raw is not None:
            rows.setdefault(sample.raw.addresses, []).append(sample)
    return rows


def _jemalloc(profile: Profile, rows: Mapping[tuple[int, ...], list[Sample]]) -> Iterator[str]:
    counts = {stack: _sums(profile, samples) for stack, samples in rows.items()}
    whole = tuple(map(sum, zip(*counts.values()))) if counts else (0, 0)
    count, size = _for_jeprof(profile, whole[0], whole[1])
    yield f"heap_v2/{profile.period}\n  t*: {count}: {size} [0: 0]\n"
    for stack, sums in counts.items():
        count, size = _for_jeprof(profile, *sums)
        yield f"@{''.join(f' {address:#x}' for address in stack)}\n  t*: {count}: {size} [0: 0]\n"


def _sums(profile: Profile, samples: list[Sample]) -> tuple[int, int]:
    """Return the sums that jemalloc keeps of a stack: eighths of blocks and bytes, each rounded for each block.

    Where profiles are not corrected for the mix of sizes, they are the blocks and bytes themselves.
    """
    count = size = 0
    for sample in samples:
        raw = sample.raw
        if raw is None or not raw.blocks:
            continue
        if not profile.unbiased:
            count, size = count + raw.blocks, size + raw.bytes
            continue
        chance = -math.expm1(-(raw.bytes / raw.blocks) / profile.period)
        if chance <= 0:
            continue
        count += raw.blocks * _rounded(_SHIFT / chance)
        size += raw.blocks * _rounded(raw.bytes / raw.blocks / chance)
    return count, size


def _for_jeprof(profile: Profile, count: int, size: int) -> tuple[int, int]:
    """Return what jeprof must read, so that its scaling gives the sums: see prof_do_unbias in jemalloc's prof_data.c.

    jeprof scales by the mean size of a stack's blocks. jemalloc 5.3 knows better, and inverts that.
    """
    if not profile.unbiased:
        return count, size
    if not count or not size:
        return 0, 0
    blocks = count / _SHIFT
    mean = size / blocks
    scaled = size * (1.0 - math.exp(-mean / profile.period))
    return _rounded(scaled / mean), _rounded(scaled)


def _rounded(value: float) -> int:
    """Return the nearest integer, as C's round() does: halves go away from zero."""
    return math.floor(value + 0.5)


def _gperftools(profile: Profile, rows: Mapping[tuple[int, ...], list[Sample]]) -> Iterator[str]:
    ever = [profile.type_index(name) for name in (ALLOC_OBJECTS, ALLOC_SPACE)]

    def sums(samples: list[Sample]) -> tuple[int, int, int, int]:
        raws = [sample.raw for sample in samples if sample.raw is not None]
        # Where what was ever allocated is not known, the text has zeros, as jemalloc's has.
        objects, space = (0 if type_ is None else sum(sample.values[type_] for sample in samples) for type_ in ever)
        return sum(raw.blocks for raw in raws), sum(raw.bytes for raw in raws), objects, space

    counts = {stack: sums(samples) for stack, samples in rows.items()}
    whole = tuple(map(sum, zip(*counts.values()))) if counts else (0, 0, 0, 0)
    kind = f"heap_v2/{profile.period}" if profile.period > 1 else "heapprofile"
    yield f"heap profile: {_line(whole)} @ {kind}\n"
    for stack, row in counts.items():
        yield f"{_line(row)} @{''.join(f' {address:#x}' for address in stack)}\n"


def _line(row: tuple[int, ...]) -> str:
    count, size, objects, space = row
    return f"{count:6}: {size:8} [{objects:6}: {space:8}]"
