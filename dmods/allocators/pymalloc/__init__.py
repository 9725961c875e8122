"""CPython's pymalloc: arenas and pools (Objects/obmalloc.c)."""

NAME = "pymalloc"
