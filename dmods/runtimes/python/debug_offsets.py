"""The table of offsets with which _PyRuntime begins since CPython 3.13 (Include/internal/pycore_debug_offsets.h).

It is a structure of structures: `_Py_DebugOffsets`. Each release has fields of its own, so a release without a
description here is refused. The rest of dmods takes some offsets for granted. Where a table has them, it is compared.
"""

from __future__ import annotations

import struct
from typing import Optional

from dmods.runtimes.python.layout import CodeLayout, FrameLayout, GilLayout, Layout, Refused

OLDEST, NEWEST = (3, 9), (3, 15)
TABLE_SIZE = 1024  # bytes that hold every table
_HEAD = 24  # bytes of the cookie, the version, and whether the build is free-threaded
_MOST = 1 << 16  # larger than any offset in these structures, but for those in the state of an interpreter
_MOST_STATE = 1 << 24
# Bytes from gi_frame_state to gi_iframe: see coroutines.py, and engine/core/src/python/unused/frames.rs.
_STATE_BEFORE_FRAME = 5

_GIL = "gil gil_state gil_enabled gil_locked gil_holder"
_RUNTIME = "size finalizing head"
_FRAME = "size previous executable instr"
_CODE = "size filename name qualname linetable firstlineno argcount names kinds start"
_OBJECTS = {
    "tuple": "size ob_item=32 ob_size=16",
    "list": "size ob_item=24 ob_size=16",
    "set": "size used=24 table=40 mask=32",
    "dict": "size ma_keys=32 ma_values=40",
    "float": "size ob_fval=16",
    "int": "size lv_tag=16 ob_digit=24",
    "bytes": "size ob_size=16 ob_sval=32",
}
#: The fields of each structure in their order, until the last one that is read here. "=": what dmods takes for granted.
_TABLES = {
    (3, 13): {
        "runtime": _RUNTIME,
        "interpreter": f"size id next threads gc modules sysdict builtins {_GIL}",
        "thread": "size prev next interp frame id native chunk status",
        "frame": f"{_FRAME} locals=72 owner",
        "code": _CODE,
        "object": "size ob_type=8",
        "type": "size tp_name=24",
    },
    (3, 14): {
        "runtime": _RUNTIME,
        "interpreter": f"size id next threads main gc modules sysdict builtins {_GIL} code_generation tlbc_generation",
        "thread": "size prev next interp frame id native chunk status",
        "frame": f"{_FRAME} locals=80 owner stackpointer=64 tlbc",
        "code": f"{_CODE} tlbc",
        "object": "size ob_type=8",
        "type": "size tp_name=24 tp_repr tp_flags=168",
        **_OBJECTS,
        "str": "size state=32 length=16 ascii=40",
        "gc": "size collecting",
        "generator": "size name frame state",
    },
    (3, 15): {
        "runtime": _RUNTIME,
        "interpreter": f"size id next threads main gc modules sysdict builtins {_GIL} code_generation tlbc_generation",
        "thread": "size prev next interp frame base_frame last_profiled sequence id native chunk status "
        "holds_gil gil_requested exception exc_state",
        "exception": "exc_value",
        "frame": f"{_FRAME} locals=80 owner stackpointer=64 tlbc",
        "code": f"{_CODE} tlbc",
        "object": "size ob_type=8",
        "type": "size tp_name=24 tp_repr tp_flags=168 tp_basicsize=32 tp_dictoffset=288",
        "class": "size ht_cached_keys=888",
        **_OBJECTS,
        "str": "size state=32 length=16 ascii=40 compact=56",
        "gc": "size collecting frame stats_size stats",
        "generator": "size name frame state",
    },
}


def from_table(data: bytes) -> Layout:
    """Return the layout that the table at the start of _PyRuntime gives. Raises Refused."""
    version_word, free_threaded = struct.unpack_from("<QQ", data, 8) if len(data) >= _HEAD else (0, 0)
    build = (version_word >> 24 & 0xFF, version_word >> 16 & 0xFF, version_word >> 8 & 0xFF)
    name = "CPython " + ".".join(map(str, build))
    if free_threaded:
        raise Refused(f"{name} is a free-threaded build (without GIL): dmods does not read it")
    if build[:2] not in _TABLES:
        raise Refused(f"{name}: dmods reads {'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}")
    tables = _read(data, build, name)
    runtime, interpreter, thread = tables["runtime"], tables["interpreter"], tables["thread"]
    frame, code = tables["frame"], tables["code"]
    return Layout(
        build[:2],
        FrameLayout((thread["frame"],), frame["executable"], frame["previous"], frame["instr"], owner=frame["owner"]),
        CodeLayout(
            code["filename"],
            code["name"],
            code["qualname"],
            code["linetable"],
            code["firstlineno"],
            code["argcount"],
            code["start"],
        ),
        runtime["head"],
        interpreter["threads"],
        interpreter["next"],
        thread["next"],
        thread["prev"],
        thread["interp"],
        thread["id"],
        thread["native"],
        build=build,
        # Five ints and a gap stand before _finalizing (Include/internal/pycore_runtime.h).
        flags=runtime["finalizing"] - 24 if runtime["finalizing"] >= 24 else None,
        gil=_gil(interpreter),
        thread_size=thread["size"],
        chunk=thread["chunk"],
    )


def _read(data: bytes, build: tuple[int, int, int], name: str) -> dict[str, dict[str, int]]:
    """Return the values of all structures by the names of their fields. Raises Refused."""
    at, tables = _HEAD, {}
    for what, text in _TABLES[build[:2]].items():
        fields = [field.partition("=") for field in text.split()]
        if len(data) < at + 8 * len(fields):
            raise Refused(f"{name}: its table of offsets is not in the dump")
        values = struct.unpack_from(f"<{len(fields)}Q", data, at)
        at += 8 * len(fields)
        tables[what] = table = {field: value for (field, _, _), value in zip(fields, values)}
        most = min(table.get("size", _MOST_STATE), _MOST_STATE if what in ("interpreter", "runtime") else _MOST)
        inside = all(value < most for field, value in table.items() if not field.endswith("size"))
        if not inside or (what in ("thread", "frame", "code") and table["size"] >= _MOST):
            raise Refused(f"{name}: its table of offsets is damaged")
        for (field, _, known), value in zip(fields, values):
            if known and int(known) != value:
                raise Refused(f"{name}: {field} of a {what} is at {value}, not at {known}: dmods does not read that")
    generator = tables.get("generator")
    if generator is not None and generator["frame"] - generator["state"] != _STATE_BEFORE_FRAME:
        raise Refused(f"{name}: gi_frame_state of a generator is elsewhere: dmods does not read that")
    return tables


def _gil(interpreter: dict[str, int]) -> Optional[GilLayout]:
    """Return where the GIL is; None where the table says that its parts lie before it."""
    start = interpreter["gil_state"]
    locked, holder = interpreter["gil_locked"] - start, interpreter["gil_holder"] - start
    return GilLayout(interpreter["gil"], locked, holder) if min(locked, holder) >= 0 else None
