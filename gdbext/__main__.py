"""`gdb -x "$(python -m gdbext)" core.1603`: the path of the file to give to gdb, wherever pip put it."""

from pathlib import Path

print(Path(__file__).with_name("heapcmds.py"))
