"""The table of functions that Go's linker puts into every Go program."""
