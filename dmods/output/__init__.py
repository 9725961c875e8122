"""Render a report as text or as JSON."""
