"""The arguments that stacks of threads and stacks of a kernel's tasks share."""

from __future__ import annotations

from typing import Optional

from dmods.command import Argument, positive

VERBOSE = Argument("-v", "--verbose", action="store_true", help="show the registers that are known in each frame")


def limit_argument(default: Optional[int] = None) -> Argument:
    """Return the argument for the number of frames."""
    return Argument("-n", "--limit", type=positive, default=default, metavar="N", help="at most N frames")


def chosen_frames(module: str) -> tuple[Argument, Argument]:
    """Return the arguments that choose stacks by a frame. ``module`` is an example of a module."""
    return (
        Argument(
            "-m",
            "--module",
            default="",
            metavar="MODULE",
            help=f"only stacks with a frame in this module ({module}, ...)",
        ),
        Argument("-c", "--caller", default="", metavar="FUNCTION", help="only stacks with a frame in this function"),
    )
