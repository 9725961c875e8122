"""Triage of a kernel dump."""
