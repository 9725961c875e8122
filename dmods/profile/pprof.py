"""Write and read the file of pprof: profile.proto, compressed by gzip. The engine encodes it."""

from __future__ import annotations

from typing import Optional, Union

from dmods import _engine
from dmods.errors import UserError
from dmods.profile.model import IN_USE, SPACE, Line, Location, Mapping, Profile, Sample

_MOST = 1 << 28  # bytes of a profile that is read, unpacked
_FILES = 1 << 28  # bytes of its file
_HOW = "give a .pb.gz file that `dmods profile -o` wrote, or a core"


class _Strings:
    """The table of strings. The first one is empty."""

    def __init__(self) -> None:
        self.all = [""]
        self._known = {"": 0}

    def number(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self.all)
            # A name out of a dump may hold lone surrogates, which UTF-8 has not.
            self.all.append(text.encode("utf-8", "replace").decode())
        return self._known[text]

    def label(self, key: str, value: Union[str, int]) -> tuple[int, Optional[int], int, int]:
        if isinstance(value, str):
            return self.number(key), self.number(value), 0, 0
        return self.number(key), None, value, self.number("bytes")


def encoded(profile: Profile) -> bytes:
    """Return the file."""
    strings = _Strings()
    text = strings.number
    functions: dict[tuple[str, str, str], int] = {}
    locations = []
    for location in profile.locations:
        lines = []
        for line in location.lines:
            key = (line.function, line.system_name, line.file)
            lines.append((functions.setdefault(key, len(functions) + 1), line.line))
        locations.append((location.mapping, location.address, lines))
    samples = [
        ([place + 1 for place in sample.stack], list(sample.values), [strings.label(*each) for each in sample.labels])
        for sample in profile.samples
    ]
    mappings = [
        (m.start, m.end, m.offset, text(m.path), text(m.build_id), m.functions, m.files, m.lines, m.inlined)
        for m in profile.mappings
    ]
    return _engine.encode_pprof(
        (
            [(text(kind), text(unit)) for kind, unit in profile.types],
            samples,
            mappings,
            locations,
            [(text(name), text(system), text(file)) for name, system, file in functions],
            # Everything that has a text has been asked by now, except for these.
            *_rest(profile, strings),
        )
    )


def _rest(profile: Profile, strings: _Strings) -> tuple[list[str], int, tuple[tuple[int, int], int], list[int], int]:
    text = strings.number
    period = ((text("space"), text("bytes")), profile.period)
    comments = [text(comment) for comment in (f"dmods: {profile.source}", *profile.comments)]
    default = text(SPACE)
    return strings.all, profile.time, period, comments, default


def read(path: str) -> Profile:
    """Return the profile in a file. Raises UserError where it is damaged or far too large."""
    try:
        with open(path, "rb") as file:
            data = file.read(_FILES + 1)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", _HOW) from None
    if len(data) > _FILES:
        raise UserError(f"{path} has more than {_FILES} bytes", _HOW)
    try:
        return decoded(data)
    except ValueError as error:
        raise UserError(f"{path} is not a profile: {error}", _HOW) from None


def decoded(data: bytes) -> Profile:
    """Return the profile in a file's bytes. Raises ValueError."""
    types, samples, mappings, locations, functions, strings, time, (_kind, period), comments, _default = (
        _engine.decode_pprof(data, _MOST)
    )
    lines = [(strings[name], strings[system], strings[file]) for name, system, file in functions]
    profile = Profile([(strings[kind], strings[unit]) for kind, unit in types], period=period, time=time)
    if not any(kind in {name for name, _unit in IN_USE} for kind, _unit in profile.types):
        raise ValueError("it is no heap profile")
    for start, end, offset, file, build_id, *flags in mappings:
        profile.mappings.append(Mapping(start, end, offset, strings[file], strings[build_id], *flags))
    for mapping, address, own in locations:
        named = tuple(Line(*lines[function - 1], number) for function, number in own)
        profile.locations.append(Location(mapping, address, named))
    for stack, values, labels in samples:
        own_labels = tuple(
            (strings[key], strings[word] if word is not None else num) for key, word, num, _unit in labels
        )
        profile.samples.append(Sample(tuple(place - 1 for place in stack), tuple(values), own_labels))
    said = [strings[comment] for comment in comments]
    profile.source = next((text[len("dmods: ") :] for text in said if text.startswith("dmods: ")), "a file")
    profile.comments = [text for text in said if not text.startswith("dmods: ")]
    return profile
