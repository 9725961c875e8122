"""The outermost layer between gdb and the pack: what becomes of an exception."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import gdb

from dmods.errors import UserError
from dmods.frontend import not_set_up
from gdbext import output

WHO = "this gdb"


def bridge(work: Callable[[], None]) -> None:
    """Does the work. What the user can mend is told without a traceback; anything else is our defect and keeps it."""
    try:
        try:
            work()
        except ImportError as error:
            if error.name != "dmods._engine":
                raise
            raise not_set_up(error, WHO) from None  # an engine older than what asks it: pulled, and not built again
    except UserError as error:
        raise gdb.GdbError(f"{error.what}\n{error.how}") from None
    except KeyboardInterrupt:
        # While Python code runs, gdb's SIGINT handler hands the signal on to it (PyErr_SetInterrupt); native code that
        # calls PyErr_CheckSignals now and then gets it, too.
        raise gdb.GdbError("Interrupted.") from None
    except gdb.error as error:
        raise gdb.GdbError(str(error)) from None
    except gdb.GdbError:
        raise
    except Exception:  # noqa: BLE001
        # By itself gdb shows a traceback only after `set python print-stack full`.
        output.note(traceback.format_exc())
        raise gdb.GdbError("dmods has a defect: please report the lines above") from None
