"""The outermost layer between gdb and dmods: it turns exceptions into what the user sees."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Optional

import gdb

from dmods.cli.frontend import CANNOT, INTERRUPTED, Asked, exit_status, not_set_up
from dmods.errors import OutputError, UserError
from dmods.output.layout import paragraph
from gdbext import output
from gdbext.batch import keep_status

WHO = "this gdb"


def bridge(work: Callable[[], None], asked: Optional[Asked] = None) -> None:
    """Do the work. An error that the user can mend is printed without a traceback, a defect of dmods with one.

    Where `asked` says that the answer is JSON, the error is JSON as well.
    """
    try:
        try:
            work()
        except ImportError as error:
            if error.name != "dmods._engine":
                raise
            # The engine is older than the code that calls it: the checkout was updated, but scripts/setup did not run.
            raise not_set_up(error, WHO) from None
    except UserError as error:
        keep_status(exit_status(error))
        if asked is not None and asked.json and not error.in_json:
            from dmods.output.json import write_error

            write_error(error, asked.command, asked.target, exit_status(error), sys.stdout)
        limit = output.width() or None
        raise gdb.GdbError(f"{paragraph(error.what, limit)}\n{paragraph(error.how, limit)}") from None
    except OutputError as error:
        keep_status(CANNOT)
        raise gdb.GdbError(f"dmods: {error}") from None
    except KeyboardInterrupt:
        # While Python code runs, gdb's SIGINT handler passes the signal on to Python (PyErr_SetInterrupt). Native code
        # sees it when it calls PyErr_CheckSignals.
        keep_status(INTERRUPTED)
        raise gdb.GdbError("Interrupted.") from None
    except gdb.error as error:
        keep_status(CANNOT)
        raise gdb.GdbError(str(error)) from None
    except gdb.GdbError:
        keep_status(CANNOT)
        raise
    except Exception:  # noqa: BLE001
        keep_status(CANNOT)
        # Without this, gdb shows a traceback only after `set python print-stack full`.
        output.note(traceback.format_exc())
        raise gdb.GdbError("dmods has a defect: please report the lines above") from None
