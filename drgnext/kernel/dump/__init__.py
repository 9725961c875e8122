"""The dump of a kernel: its file, its memory and its debug information."""
