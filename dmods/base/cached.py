"""Results that are computed once for each state of a process or kernel."""

from __future__ import annotations

from collections.abc import Hashable
from functools import wraps
from typing import Any, Callable, Protocol, TypeVar


class Stateful(Protocol):
    """A process or kernel that can move. See ``Target.state``."""

    def state(self) -> Hashable:
        """Return a value that changes whenever the process has moved."""


Subject = TypeVar("Subject", bound=Stateful)
Result = TypeVar("Result")

# The results are kept in an attribute of the target itself. They refer to the target, so a dictionary elsewhere would
# keep every core alive that was ever opened, even with weak keys.
_ATTRIBUTE = "_cached_results"


def cached(compute: Callable[[Subject], Result]) -> Callable[[Subject], Result]:
    """Return a function that calls `compute` once for each state of its argument."""

    @wraps(compute)
    def ask(subject: Subject) -> Result:
        results: dict[Callable[..., Any], tuple[Hashable, Any]] = vars(subject).setdefault(_ATTRIBUTE, {})
        state = subject.state()
        entry = results.get(compute)
        if entry is None or entry[0] != state:
            entry = results[compute] = (state, compute(subject))
        result: Result = entry[1]
        return result

    return ask


def forget(subject: Stateful, *functions: Callable[..., Any]) -> None:
    """Drop the results of these functions, or all results, so that they are computed again."""
    if not functions:
        vars(subject).pop(_ATTRIBUTE, None)
        return
    results = vars(subject).get(_ATTRIBUTE, {})
    for function in functions:
        results.pop(getattr(function, "__wrapped__", function), None)
