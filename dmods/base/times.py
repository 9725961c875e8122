"""Times of dumps, as reports show them."""

from __future__ import annotations


def utc_minute(seconds: float) -> str:
    """Return a time (seconds since 1970) in UTC, to the minute; "" for a number that is no time."""
    from datetime import datetime, timezone  # few answers have times

    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return ""
