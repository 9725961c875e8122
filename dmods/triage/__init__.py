"""Triage: checks that look at a dump, and the report that says what they found."""
