"""The verbs of the shell, and what the front ends share."""
