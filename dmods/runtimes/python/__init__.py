"""CPython 3.9 to 3.15: its interpreters, threads, frames and objects."""

COOKIE = b"xdebugpy"  # _Py_Debug_Cookie: _PyRuntime begins with it, since 3.13
STATE = 1 << 20  # bytes of an interpreter's state that are searched
