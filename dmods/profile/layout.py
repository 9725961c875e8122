"""Lay out a flame graph: the place of each frame. Only frames that are wide enough are looked into."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Callable

from dmods.base.dataclass import dataclass

_DEPTH = 512


@dataclass
class Node:
    """The amount under a name, in the base (``old``) and now (``new``). ``width`` is the larger of both."""

    name: str
    old: int = 0
    new: int = 0
    width: int = 0


@dataclass
class Frame:
    """A node at its place. ``members`` are the numbers of what it consists of, until its children are made."""

    node: Node
    x: float
    width: float
    depth: int
    parent: int
    members: array[int]


#: Returns the children of these members, which have this depth: each child with members of its own.
Split = Callable[["array[int]", int], Iterable["tuple[Node, array[int]]"]]


def laid_out(root: Node, members: array[int], split: Split, least: float, most: int) -> tuple[list[Frame], int]:
    """Return the frames, and how many children of theirs were too narrow to be one.

    A holder comes before what it holds. ``least`` is the share of the root's width that a frame must have, ``most`` the
    number of frames.
    """
    frames = [Frame(root, 0.0, 1.0, 0, -1, members)]
    dropped, at = 0, 0
    while at < len(frames):
        own = frames[at]
        x = own.x
        children = split(own.members, own.depth)
        own.members = array("L")
        for child, inside in sorted(children, key=lambda each: (-each[0].width, each[0].name)):
            width = child.width / root.width if root.width else 0.0
            if width < least or len(frames) >= most or own.depth + 1 >= _DEPTH:
                dropped += 1
                continue
            frames.append(Frame(child, x, width, own.depth + 1, at, inside))
            x += width
        at += 1
    return frames, dropped
