"""CPython's pymalloc: arenas and pools (Objects/obmalloc.c)."""
