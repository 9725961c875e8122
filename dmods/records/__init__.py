"""Allocation records: who allocated what, as the auditor or a profiling allocator wrote it down."""
