"""ELF files of a process: how they are read, where they are, their symbols and source lines."""
