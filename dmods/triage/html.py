"""The report as one HTML file: no network, readable without scripts, every text of the dump escaped by Jinja2.

The page's policy allows only its own style and script, by their hashes. Without the script all parts are there; the
script sorts tables.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dmods.base.raw_names import printable
from dmods.base.sizes import human_size
from dmods.base.times import utc_minute
from dmods.errors import UserError
from dmods.output.streaming import Subject, target_name
from dmods.profile import flame
from dmods.report import Report
from dmods.triage.answer import Memory, Triage
from dmods.triage.report import crash_signature, holder_sentence, verdict_sentence

_LONGEST = 2000  # characters of one text of the dump
_COLOURS = 12
_HERE = Path(__file__).parent


def html(found: Triage, report: Report, target: Subject, json: str) -> str:
    """Return the page. ``json`` is the object that --json prints. Raises UserError where Jinja2 is missing."""
    bars = _bars(found.memory) if found.memory is not None else []
    drawn = any(part.picture for part in found.details)
    return page(
        "report.html.j2",
        _widths(bars),
        json,
        pictures=drawn,
        title=f"triage of {target_name(target)}",
        verdict=verdict_sentence(found, str(report.totals["kind"])),
        found=found,
        holder=holder_sentence(found.holder) if found.holder is not None else "",
        signature=crash_signature(found),
        bars=bars,
        notes=[*target.notes, *report.notes],
    )


def page(template: str, more_style: str, json: str, pictures: bool = False, **values: object) -> str:
    """Return a page from a template of this folder, with our style and script. Raises UserError without Jinja2.

    ``pictures``: the page has flame graphs, which have a style and a script of their own.
    """
    try:
        import jinja2
    except ImportError:
        raise UserError(
            "the HTML report needs Jinja2, which this Python does not have",
            "`dmods triage CORE -o report.html` in the shell writes it; or -o report.json",
        ) from None
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FileSystemLoader(str(_HERE)),
    )
    environment.filters["shown"] = shown
    environment.filters["marked"] = marked
    environment.filters["size"] = human_size
    environment.filters["day"] = utc_minute
    style, script = (_file(name) for name in ("report.css", "report.js"))
    style += more_style
    if pictures:
        style, script = flame.style() + style, script + flame.script()
    return environment.get_template(template).render(
        policy=policy(style, script),
        raw=_raw,
        style=_raw(style),
        script=_raw(script),
        json=_raw(embedded(json)),
        time=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
        **values,
    )


def shown(text: object) -> str:
    """Return text of a dump: control characters are written as escapes, and a very long text is cut."""
    whole = str(text)
    cut = printable(whole[:_LONGEST])
    return cut + (f"... ({len(whole):,} characters)" if len(whole) > _LONGEST else "")


def marked(text: object) -> Any:
    """Return a text as ``shown`` does, escaped, with what stands between backquotes as code."""
    from markupsafe import Markup, escape

    parts = shown(text).split("`")
    if len(parts) % 2 == 0:  # one of them stands alone: module`function
        return escape("`".join(parts))
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if index % 2 else escape(part) for index, part in enumerate(parts))


def embedded(json: str) -> str:
    """Return the JSON so that no HTML parser sees an end of the element in it. It is the same JSON."""
    escapes = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
    return re.sub("[<>&\u2028\u2029]", lambda found: escapes[found[0]], json)


def policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _raw(text: str) -> Any:
    """Return text of our own, which is not escaped."""
    from markupsafe import Markup

    return Markup(text)


def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _bars(memory: Memory) -> list[tuple[int, str, int, int, str]]:
    """Return (colour, name, bytes, percent, note) of each part."""
    percents = memory.percents()
    return [
        (index % _COLOURS, part.name, part.bytes, percent, part.note)
        for index, (part, percent) in enumerate(zip(memory.parts, percents))
    ]


def _widths(bars: Sequence[tuple[int, str, int, int, str]]) -> str:
    """Return the style of the bar's parts. The policy allows no style in an element."""
    return "".join(f"#part{index}{{width:{bar[3]}%}}" for index, bar in enumerate(bars))
