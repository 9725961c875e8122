"""Draw a profile as a flame graph: one SVG or HTML file that opens without a network.

The root is above. A frame is as wide as its value; in a difference, as wide as the larger of the two values, so that
what has gone is visible, too. Every text from the dump is escaped, and the page's policy allows only its own script.
"""

from __future__ import annotations

import hashlib
from array import array
from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.base.raw_names import printable
from dmods.base.sizes import human_size
from dmods.profile.holders import NAME, Holders
from dmods.profile.layout import Frame, Node, laid_out
from dmods.profile.model import SPACE, Sample
from dmods.profile.view import View, is_base
from dmods.target import Target

_ROW = 18  # pixels
_TOOLS = 150  # pixels above the frames of an SVG
_LEAST = 1 / 4000  # a narrower frame is not drawn: it would be less than half a pixel
_MOST = 20_000  # frames
_LEAST_EMBEDDED, _MOST_EMBEDDED, _NAME_EMBEDDED = 1 / 1500, 800, 120  # in a page of many parts: 500 KB at most
_ALL = "all"  # the name of the outermost frame
_WINDOW = 8  # names of a stack that are kept
_NAME = 1000  # characters of a name
_COLOURS = 8
_STEPS = ((0.05, 1), (0.25, 2), (0.6, 3))  # how much changed -> how strong the colour is; 4 is the strongest
_TOP = 50  # rows of the table in HTML


class _Stacks:
    """The different stacks of a view, root first, with their values in the base (``old``) and now (``new``).

    A big profile has hundreds of thousands of stacks with as many names each. So the names are made again when they are
    asked for, and each stack keeps only those of a few depths: pictures ask depth by depth.
    """

    def __init__(self, view: View) -> None:
        self._view, self._names = view, view.names()
        self._samples: list[Sample] = []  # one of each stack
        self._windows: list[tuple[str, ...]] = []
        self._window_at = array("l")
        self.old: list[int] = []
        self.new: list[int] = []
        known: dict[int, int] = {}
        for sample in view.samples():
            # Two stacks of one hash of 64 bits are not expected. In a picture they would share a frame.
            number = known.setdefault(hash(view.stack(sample, self._names, True)), len(self._samples))
            if number == len(self._samples):
                self._samples.append(sample)
                self._windows.append(())
                self._window_at.append(-_WINDOW)
                self.old.append(0)
                self.new.append(0)
            if is_base(sample):
                self.old[number] -= sample.values[view.index]
            else:
                self.new[number] += sample.values[view.index]

    def __len__(self) -> int:
        return len(self._samples)

    def name(self, number: int, depth: int) -> Optional[str]:
        """Return the name of a stack's frame at that depth, counted from its root; None where it has ended."""
        place = depth - self._window_at[number]
        if not 0 <= place < _WINDOW:
            path = self._view.stack(self._samples[number], self._names, True)[::-1]
            self._windows[number], self._window_at[number], place = path[depth : depth + _WINDOW], depth, 0
        window = self._windows[number]
        return window[place] if place < len(window) else None

    def split(self, members: array[int], depth: int) -> list[tuple[Node, array[int]]]:
        """Return the stacks by their name at that depth, with sums. Stacks that end above it are left out."""
        found: dict[str, tuple[Node, array[int]]] = {}
        for number in members:
            name = self.name(number, depth)
            if name is None:
                continue
            if name not in found:
                found[name] = (Node(name), array("L"))
            node, inside = found[name]
            old, new = self.old[number], self.new[number]
            node.old, node.new = node.old + old, node.new + new
            node.width += max(old, new)
            inside.append(number)
        return list(found.values())


@dataclass
class Picture:
    """A flame graph that is laid out. ``dropped`` frames were too narrow to be drawn. ``notes`` are the profile's."""

    title: str
    unit: str
    notes: Sequence[str]
    frames: list[Frame]
    dropped: int
    compared: bool = False

    @property
    def height(self) -> int:
        """Return the pixels of the frames."""
        return (max(frame.depth for frame in self.frames) + 1) * _ROW


def picture(view: View, least: float = _LEAST, most: int = _MOST) -> Picture:
    """Return the flame graph of the view. Only what is wide enough is looked into.

    ``least`` is the share of the width that a frame must have, ``most`` the number of frames.
    """
    stacks = _Stacks(view)
    root = Node(_ALL, sum(stacks.old), sum(stacks.new), sum(map(max, stacks.old, stacks.new)))
    frames, dropped = laid_out(root, array("L", range(len(stacks))), stacks.split, least, most)
    title = f"{view.sample} of {view.profile.source}"
    return Picture(title, view.unit, view.profile.notes, frames, dropped, view.compared)


def picture_of_holders(holders: Holders, least: float, most: int) -> Picture:
    """Return the flame graph of the bytes in use by who holds them. Chains that are not drawn take no time.

    It is the picture of the profile of these holders.
    """
    root = Node(_ALL, 0, holders.total, holders.total)
    frames, dropped = laid_out(root, array("L", [len(holders.nodes)]), holders.split, least, most)
    return Picture(f"{SPACE} of {NAME}", "bytes", holders.notes, frames, dropped)


def svg(view: View) -> Iterator[str]:
    """Yield an SVG file."""
    drawn = picture(view)
    height = drawn.height + _TOOLS
    yield (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height}" class="page flame">\n'
        f"<title>{_escaped(drawn.title)}</title>\n<style>{style()}</style>\n"
        f'<foreignObject width="100%" height="{_TOOLS}"><div xmlns="http://www.w3.org/1999/xhtml">\n'
    )
    yield from _head(drawn, tools(' id="search"', ' id="state"'))
    yield "</div></foreignObject>\n"
    yield from _chart(drawn, f' y="{_TOOLS}"')
    yield f"<script><![CDATA[\n{script()}]]></script>\n</svg>\n"


def html(view: View) -> Iterator[str]:
    """Yield an HTML file: the flame graph, and the first functions as a table."""
    drawn = picture(view)
    styles, scripts = style(), script()
    policy = (
        f"default-src 'none'; script-src '{_hash(scripts)}'; style-src '{_hash(styles)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escaped(drawn.title)}</title>\n<style>{styles}</style>\n</head>\n"
        '<body class="page">\n<main class="flame">\n'
    )
    yield from _head(drawn, tools(' id="search"', ' id="state"'))
    yield from _chart(drawn)
    yield from _table(view)
    yield f"</main>\n<script>{scripts}</script>\n</body>\n</html>\n"


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def embedded(view: View) -> Optional[str]:
    """Return the picture as an element of a page that has STYLE and SCRIPT; None where there is nothing to draw.

    It has fewer frames than a file of its own.
    """
    return _embedded(picture(view, _LEAST_EMBEDDED, _MOST_EMBEDDED))


def embedded_holders(target: Target) -> Optional[str]:
    """Return the picture of who holds the heap, as `embedded` does. Raises UserError where there is no heap."""
    return _embedded(picture_of_holders(Holders(target), _LEAST_EMBEDDED, _MOST_EMBEDDED))


def _embedded(drawn: Picture) -> Optional[str]:
    if not drawn.frames[0].width or not drawn.frames[0].node.width:
        return None
    lines = "".join(f"<p>{_escaped(line)}</p>\n" for line in _lines(drawn))
    return f'<div class="flame">\n{lines}{tools()}{"".join(_chart(drawn, name=_NAME_EMBEDDED))}</div>\n'


def style() -> str:
    """Return the style of pictures."""
    return _file("flame.css")


def script() -> str:
    """Return the script that searches and zooms. Without it the picture is there, and stands still."""
    return _file("flame.js")


def tools(search: str = "", state: str = "") -> str:
    """Return the search, the button, and the line that says what was found. Both arguments are attributes."""
    return (
        '<div class="tools" role="search"><label>Search (regular expression) '
        f'<input{search} class="search" type="search" autocomplete="off" spellcheck="false" /></label>'
        '<button class="reset" type="button" disabled="disabled">Zoom out</button></div>\n'
        "<p>Arrow keys move, Enter zooms, Escape zooms out, / searches.</p>\n"
        f'<p{state} class="state" role="status" aria-live="polite"></p>\n'
    )


def _head(drawn: Picture, controls: str) -> Iterator[str]:
    yield f"<h1>{_escaped(drawn.title)}</h1>\n"
    yield "".join(f"<p>{_escaped(line)}</p>\n" for line in _lines(drawn)) + controls


def _lines(drawn: Picture) -> list[str]:
    root = drawn.frames[0].node
    lines = [_amounts(root, drawn)]
    lines.extend(drawn.notes)
    if drawn.compared:
        lines.append("Red grew, blue shrank, grey stayed as it was.")
    if drawn.dropped:
        frames = "1 frame is" if drawn.dropped == 1 else f"{drawn.dropped} frames are"
        lines.append(f"{frames} too narrow to be drawn. What they hold is in the frames above them.")
    return lines[:4]


def _chart(drawn: Picture, place: str = "", name: int = _NAME) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="tree" width="100%"{place} '
        f'height="{drawn.height}" aria-label="{_escaped(drawn.title)}">\n'
    )
    for number, frame in enumerate(drawn.frames):
        node, shown = frame.node, _escaped(frame.node.name, name)
        yield (
            f'<svg class="f {_colour(drawn, node)}" role="treeitem" aria-level="{frame.depth + 1}" '
            f'tabindex="{0 if number == 0 else -1}" data-x="{frame.x:.9g}" data-w="{frame.width:.9g}" '
            f'data-d="{frame.depth}" data-p="{frame.parent}" data-v="{node.new}" '
            f'x="{100 * frame.x:.6g}%" y="{frame.depth * _ROW}" width="{100 * frame.width:.6g}%" height="{_ROW}">'
            f"<title>{shown}: {_escaped(_amounts(node, drawn))}</title>"
            f'<rect width="100%" height="100%"/><text x="3" y="13">{shown}</text></svg>\n'
        )
    yield "</svg>\n"


def _table(view: View) -> Iterator[str]:
    graph = view.graph()
    yield (
        "<details><summary>The first functions as a table</summary>\n<table><thead><tr>"
        '<th scope="col">Flat</th><th scope="col">Cum</th><th scope="col">Function</th></tr></thead><tbody>\n'
    )
    for name, node in graph.ordered()[:_TOP]:
        yield f'<tr><td class="n">{node.flat}</td><td class="n">{node.cum}</td><td>{_escaped(name)}</td></tr>\n'
    yield "</tbody></table></details>\n"


def _amounts(node: Node, drawn: Picture) -> str:
    """Return what a frame holds in words."""
    root = drawn.frames[0].node
    share = _share(node.new, root.new)
    if not drawn.compared:
        return f"{_size(node.new, drawn)}{share}"
    change = node.new - node.old
    sign = "+" if change > 0 else "-" if change < 0 else ""
    return f"{sign}{_size(abs(change), drawn)}: before {_size(node.old, drawn)}, now {_size(node.new, drawn)}{share}"


def _share(part: int, whole: int) -> str:
    return f", {100 * part / whole:.2f} %" if whole else ""


def _size(value: int, drawn: Picture) -> str:
    if drawn.unit != "bytes":
        return f"{value} blocks"
    return f"{value} bytes ({human_size(value)})" if value >= 1024 else f"{value} bytes"


def _colour(drawn: Picture, node: Node) -> str:
    if not drawn.compared:
        return f"c{hashlib.sha256(node.name.encode('utf-8', 'replace')).digest()[0] % _COLOURS}"
    larger, change = max(node.old, node.new), node.new - node.old
    if not change or not larger:
        return "same"
    step: Optional[int] = next((step for most, step in _STEPS if abs(change) / larger <= most), 4)
    return f"{'up' if change > 0 else 'down'}{step}"


def _escaped(text: str, most: int = _NAME) -> str:
    """Return text of a dump for HTML and XML: control characters are written as escapes."""
    return escape(printable(text[:most]), quote=True)
