"""Triage of every dump in a list of folders, several at once. What was done stays done."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Callable, Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.progress import Progress
from dmods.errors import UserError
from dmods.triage.fleet.content import content_id, dumps, origin
from dmods.triage.fleet.examine import DEFAULT, Examined, Limits, examine
from dmods.triage.fleet.push import Pusher
from dmods.triage.fleet.store import Store

_AHEAD = 4  # dumps for each worker that are handed over before one is done


class Work(NamedTuple):
    """A dump that has no row yet."""

    key: str
    folder: str
    path: str


class Done(NamedTuple):
    """The dumps that a run looked at, counted: new ones, those without a report, and those that were known already."""

    new: int
    failed: int
    known: int


def jobs_here() -> int:
    """Return how many dumps are looked at at once: one for each processor that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def pool(jobs: int, dask: Optional[str]) -> Iterator[tuple[Executor, int]]:
    """Open the workers: here, each dump in a process of its own; or those of the Dask cluster at the address ``dask``.

    Both are executors of concurrent.futures. The second value is how many dumps they look at at once.
    """
    if dask is None:
        # A thread waits for each process (dmods/triage/fleet/examine.py).
        with ThreadPoolExecutor(jobs) as executor:
            yield executor, jobs
        return
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise UserError(
            "--dask needs the package distributed, which this Python does not have", "pip install 'dmods[fleet]'"
        ) from None
    try:
        client = distributed.Client(dask, timeout="15s")
    except (OSError, ValueError) as error:
        raise UserError(f"no Dask scheduler answers at {dask}: {error}", "for example --dask tcp://host:8786") from None
    with client:
        workers = sum(client.nthreads().values()) or 1
        yield client.get_executor(pure=False), workers


def triage_all(
    paths: Sequence[str],
    store: Store,
    executor: Executor,
    at_once: int,
    *,
    limits: Limits = DEFAULT,
    redact: bool = False,
    again: bool = False,
    pusher: Optional[Pusher] = None,
    one: Callable[..., Examined] = examine,
) -> Done:
    """Look at every dump that the database does not know, and write each when it is done. ``again``: also at those that
    had no report. ``pusher`` sends their heap profiles."""
    done = store.done(again)
    todo: dict[str, Work] = {}
    known = 0
    for folder, path in dumps(paths):
        try:
            key = content_id(path)
        except OSError:
            key = f"unreadable {os.path.abspath(path)}"
        if key in done:
            known += 1
        else:
            todo.setdefault(key, Work(key, folder, path))
    failed = 0
    with Progress("triage") as bar:
        pending: dict[Future[Examined], Work] = {}
        left = iter(todo.values())
        count = 0

        def more() -> None:
            for work in left:
                pending[executor.submit(one, os.path.abspath(work.path), limits, redact, pusher is not None)] = work
                if len(pending) >= at_once * _AHEAD:
                    return

        try:
            more()
            while pending:
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    work = pending.pop(future)
                    found = _result(future)
                    where = origin(work.folder, work.path)
                    store.add(work.key, os.path.abspath(work.path), where, found)
                    if pusher is not None and found.profile is not None and found.report is not None:
                        totals = found.report["totals"]
                        pusher.push(found.profile, totals.get("program"), totals.get("build_id"), where)
                    failed += found.report is None
                    count += 1
                    bar.update(count, len(todo))
                more()
        except BaseException:
            _cancel(pending)
            raise
    return Done(len(todo), failed, known)


def _result(future: Future[Any]) -> Examined:
    """Return what a worker says. A worker that went away costs one dump, not the run."""
    try:
        found = future.result()
    except Exception as error:  # noqa: BLE001 (of the executor: a cluster has many)
        return Examined(None, f"the worker was lost: {type(error).__name__}: {error}"[:500], 0.0)
    return Examined(*found)


def _cancel(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.cancel()
