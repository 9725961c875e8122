"""Triage of many dumps: a database, buckets of dumps that died alike, and one report about all."""
