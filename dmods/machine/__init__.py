"""Checks of what is installed on this machine, and whether it works together."""
