"""``dmods cache``: copies of compressed dumps, files that were unpacked from images, types of debug information."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dmods.base.raw_names import printable
from dmods.base.sizes import counted, human_size
from dmods.base.times import utc_minute
from dmods.cli.frontend import say
from dmods.corefile import cached_types, unpacked
from dmods.corefile.images.root import KIND, clear_images, kept_images
from dmods.errors import UsageError

SUMMARY = "list or remove copies of compressed dumps, files from images, and types of debug information"
USAGE = "usage: dmods cache [--list | --clear]   (they lie in ~/.cache/dmods, or in $XDG_CACHE_HOME/dmods)"


def run(words: Sequence[str]) -> int:
    """List the copies, or remove them. Raises UsageError for other words."""
    if list(words) in (["-h"], ["--help"]):
        say(f"{USAGE}\n\n{SUMMARY}")
        return 0
    if list(words) == ["--clear"]:
        count, size = unpacked.clear()
        count_of_images, size_of_images = clear_images()
        say(f"removed {counted(count, 'copy', 'copies')} with {human_size(size)} from {unpacked.folder_of_copies()}")
        if count_of_images:
            what = f"the files of {counted(count_of_images, 'image')} with {human_size(size_of_images)}"
            say(f"removed {what} from {unpacked.folder_of_copies(KIND)}")
        count_of_tables, size_of_tables = cached_types.clear_tables()
        if count_of_tables:
            what = f"the types of {counted(count_of_tables, 'file')} with {human_size(size_of_tables)}"
            say(f"removed {what} from {unpacked.folder_of_copies(cached_types.KIND)}")
        return 0
    if list(words) not in ([], ["--list"]):
        raise UsageError(f"cache does not know {' '.join(words)}", USAGE)
    copies, images, tables = unpacked.copies(), kept_images(), cached_types.kept_tables()
    say(f"{counted(len(copies), 'copy', 'copies')} in {unpacked.folder_of_copies()}", sys.stderr)
    if images:
        say(f"files of {counted(len(images), 'image')} in {unpacked.folder_of_copies(KIND)}", sys.stderr)
    if tables:
        say(f"types of {counted(len(tables), 'file')} in {unpacked.folder_of_copies(cached_types.KIND)}", sys.stderr)
    for copy in (*copies, *images, *tables):
        about = f"{human_size(copy.stored):>5}  {utc_minute(copy.used)}"
        print(f"{about}  {printable(copy.path)}  {printable(copy.source)}")
    return 0
