"""Exceptions and panics of languages, as their runtimes leave them in memory."""
