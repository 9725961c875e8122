"""dmods: the debugger-neutral model and the commands. Imports neither gdb nor drgn."""
