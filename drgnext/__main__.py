"""`python -m drgnext DIR`: links the launchers into DIR, from where `drgn -c vmcore memstat` then works as typed."""

from __future__ import annotations

import sys
from pathlib import Path

from dmods import command

LAUNCHER = Path(__file__).resolve().with_name("launcher.py")


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0].startswith("-"):
        print("usage: python -m drgnext DIR   (links the launchers into DIR)", file=sys.stderr)
        return 2
    folder = Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    status = 0
    for name in command.names():
        link = folder / name
        if link.is_symlink() and link.resolve() != LAUNCHER:
            link.unlink()  # a launcher of another dmods, or a link to nothing
        if link.exists() and not link.samefile(LAUNCHER):
            print(f"{link} is a file of yours: left alone", file=sys.stderr)
            status = 1
            continue
        if not link.is_symlink():
            link.symlink_to(LAUNCHER)
        print(link)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
