"""Heap profiles of a process: one model, several sources, several forms to write it in."""
