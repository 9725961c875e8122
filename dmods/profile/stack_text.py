"""Write a profile as folded stacks and as speedscope's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dmods.base.raw_names import in_json, printable
from dmods.profile.view import Both, View

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def folded(view: View) -> Iterator[str]:
    """Yield a line for each stack: names from the root on with semicolons between, and the value.

    Of a difference there are two values, the base's and the new one, as difffolded.pl writes them.
    """
    compared = view.compared
    for path, value in sorted(view.paths().items()):
        values = f"{value.old} {value.new}" if compared else str(value.new)
        yield f"{';'.join(map(_plain, path))} {values}\n"


def _plain(name: str) -> str:
    """Return a name for a folded stack: semicolons and control characters have a meaning there."""
    return printable(name).replace(";", ",") or "?"


def speedscope(view: View) -> Iterator[str]:
    """Yield the JSON of https://www.speedscope.app/file-format-schema.json.

    A difference has four profiles: now, before, what grew and what shrank.
    """
    paths = view.paths()
    frames: dict[str, int] = {}
    indexed = [([frames.setdefault(name, len(frames)) for name in path], both) for path, both in paths.items()]
    unit = "bytes" if view.unit == "bytes" else "none"
    views = [(view.sample, lambda both: both.new)]
    if view.compared:
        views += [
            ("base", lambda both: both.old),
            ("grew", lambda both: max(0, both.new - both.old)),
            ("shrank", lambda both: max(0, both.old - both.new)),
        ]
    yield in_json(
        json.dumps(
            {
                "$schema": _SCHEMA,
                "name": view.profile.source,
                "exporter": "dmods",
                "activeProfileIndex": 0,
                "shared": {"frames": [{"name": name} for name in frames]},
                "profiles": [_profile(name, unit, indexed, weight) for name, weight in views],
            }
        )
    )


def _profile(name: str, unit: str, indexed: list[tuple[list[int], Both]], weight: object) -> dict[str, object]:
    assert callable(weight)
    kept = [(path, size) for path, both in indexed if (size := weight(both)) > 0]
    return {
        "type": "sampled",
        "name": name,
        "unit": unit,
        "startValue": 0,
        "endValue": sum(size for _path, size in kept),
        "samples": [path for path, _size in kept],
        "weights": [size for _path, size in kept],
    }
