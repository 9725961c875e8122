"""The forms in which a profile is written to a file: the end of the file's name says which."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Callable, Union

from dmods.errors import UsageError, UserError
from dmods.profile import flame, heap_text, pprof, stack_text
from dmods.profile.model import Profile, Sample
from dmods.profile.view import View

Write = Callable[[View], Iterable[Union[str, bytes]]]


def _pprof(view: View) -> Iterator[bytes]:
    kept = list(view.samples())
    profile = view.profile
    yield pprof.encoded(profile if len(kept) == len(profile.samples) else _only(profile, kept))


#: The forms by the end of the file's name.
FORMS: dict[str, Write] = {
    ".pb.gz": _pprof,
    ".heap": heap_text.text,
    ".folded": stack_text.folded,
    ".speedscope.json": stack_text.speedscope,
    ".svg": flame.svg,
    ".html": flame.html,
}


def form(path: str) -> Write:
    """Return what writes the form that the name says. Raises UsageError."""
    return FORMS[form_end(path)]


def form_end(path: str) -> str:
    """Return the end of a file's name that says its form, such as ".pb.gz". Raises UsageError."""
    for end in FORMS:
        if path.endswith(end):
            return end
    raise UsageError(f"the name {path} says no form", f"end it with one of: {', '.join(FORMS)}")


def check_difference(path: str) -> None:
    """Raise UsageError where the form that the name says has no negative numbers: it cannot hold a difference."""
    if FORMS[form_end(path)] is heap_text.text:
        raise UsageError("a .heap file has no negative numbers, so it holds no difference", heap_text.HOW_TO_COMPARE)


def write_file(view: View, write: Write, path: str) -> int:
    """Write the file, and return its bytes. It takes its name when it is whole. Raises UserError."""
    partial = f"{path}.{os.getpid()}.partial"
    size = 0
    try:
        with open(partial, "wb") as out:
            for piece in write(view):
                size += out.write(piece if isinstance(piece, bytes) else piece.encode("utf-8", "backslashreplace"))
        os.replace(partial, path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}", "name a file in a folder that exists and has room"
        ) from None
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    return size


def _only(profile: Profile, samples: list[Sample]) -> Profile:
    """Return the profile with these samples only."""
    made = Profile(profile.types, samples, profile.locations, profile.mappings, profile.comments)
    made.period, made.source, made.time = profile.period, profile.source, profile.time
    return made


def numbered(path: str, word: str) -> str:
    """Return a file's name with a word before its form: x.pb.gz and "1603" make x.1603.pb.gz."""
    end = form_end(path)
    return f"{path[: -len(end)]}.{word}{end}"
