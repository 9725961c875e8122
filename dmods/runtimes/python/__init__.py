"""CPython 3.9 to 3.14: its interpreters, threads, frames and objects."""
