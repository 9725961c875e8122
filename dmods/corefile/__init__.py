"""A core file as a Target, without a debugger: its notes, segments and memory image."""
