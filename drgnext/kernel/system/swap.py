"""The areas that a kernel swaps to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.system.paths import Paths
from drgnext.kernel.system.reading import number

if TYPE_CHECKING:
    from drgnext.kernel.system.reading import Reader

_SWP_USED = 1  # include/linux/swap.h
_MOST = 64  # MAX_SWAPFILES is at most 32
_S_IFMT, _S_IFBLK = 0o170000, 0o060000


class SwapArea(NamedTuple):
    """A swap area. ``size`` and ``used`` are pages; the header's page is not counted, as in /proc/swaps.

    ``kind`` is "partition" for any block device.
    """

    path: str
    kind: str
    size: int
    used: int
    priority: int
    flags: int
    address: int


def swap_areas(reader: Reader) -> list[SwapArea]:
    """Return the areas in use, in the order of their numbers."""
    array, count = reader.symbol("swap_info"), reader.symbol("nr_swapfiles")
    if array is None or count is None:
        return []
    found = []
    for each in range(min(int(count), len(array), _MOST)):
        with reader.reading("swap areas"):
            area = array[each]
            if not area.value_() or not int(area.flags) & _SWP_USED or not area.swap_file.value_():
                continue
            mode = int(area.swap_file.f_mapping.host.i_mode)
            found.append(
                SwapArea(
                    Paths(reader).path(area.swap_file.f_path),
                    "partition" if mode & _S_IFMT == _S_IFBLK else "file",
                    int(area.pages),
                    number(area.inuse_pages),
                    int(area.prio),
                    int(area.flags),
                    area.value_(),
                )
            )
    return found
