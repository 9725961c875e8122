"""Copies of programs and libraries by their build-id: of a program that was upgraded or removed since it ran."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.modules.debuginfod import debuginfod_file
from dmods.modules.localfiles import DEBUG_ROOT, LocalFile, LocalFiles, below_build_id, open_local


def copy_of(files: LocalFiles, build_id: str, head: bytes) -> Optional[LocalFile]:
    """Return a copy of the program or library with that build-id, or None.

    The places are those of gdb and debuginfod: .build-id below the folders of debug information (without .debug), and
    the cache of debuginfod clients. ``head`` is the first page in the process: a file with debug information alone has
    the same build-id, and another header.
    """
    for found in _places(files, build_id):
        if found is None or found.elf is None or found.build_id != build_id:
            continue
        if found.head[: len(head)] == head[: len(found.head)]:
            return found
    return None


def _places(files: LocalFiles, build_id: str) -> Iterator[Optional[LocalFile]]:
    place = below_build_id(DEBUG_ROOT, build_id)
    yield files.inside(place)
    yield open_local(place)
    downloaded = debuginfod_file(build_id, "executable")
    yield open_local(downloaded) if downloaded is not None else None
