"""Send the heap profile of each dump to a server that keeps profiles: a POST of pprof's profile.proto.

The address, its query and the body are those of Pyroscope's /ingest. A server that takes a profile as the body of a
POST, and ignores the query, takes them as well.
"""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import Optional

from dmods.base.regex import regex
from dmods.errors import UsageError
from dmods.triage.fleet.content import Origin

SECONDS = 10.0  # that the server may take for one profile
MOST = 32 << 20  # bytes of a profile
_GIVE_UP = 3  # failures in a row
_LABEL = regex(r"[^A-Za-z0-9_.:/ -]")


class Pusher:
    """Sends profiles to one server. After three failures in a row it sends no more: a run must not wait for it."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UsageError(f"{url} is no address of a server", "for example --push http://localhost:4040/ingest")
        self.url = url
        self.sent = 0
        self.failed = 0
        self.reason: Optional[str] = None
        self._in_row = 0

    @property
    def gave_up(self) -> bool:
        """Return whether no more profiles are sent."""
        return self._in_row >= _GIVE_UP

    def push(self, profile: bytes, program: Optional[str], build_id: Optional[str], origin: Origin) -> None:
        """Send a profile: a gzip of profile.proto. What goes wrong is counted, and ``reason`` says it."""
        if self.gave_up:
            self.failed += 1
            return
        found: list[Optional[str]] = []
        address = self._address(program, build_id, origin)
        # A server that sends a byte now and then keeps each read alive: only a thread can be left behind.
        sender = threading.Thread(target=lambda: found.append(_send(address, profile)), daemon=True)
        sender.start()
        sender.join(2 * SECONDS)
        reason = found[0] if found else f"the server does not answer within {2 * SECONDS:.0f} s"
        if reason is None:
            self.sent += 1
            self._in_row = 0
        else:
            self.failed += 1
            self._in_row += 1
            self.reason = reason

    def _address(self, program: Optional[str], build_id: Optional[str], origin: Origin) -> str:
        labels = {"host": origin.host, "build_id": build_id or "", "version": origin.version}
        told = ",".join(f"{name}={_plain(value)}" for name, value in labels.items() if value)
        name = f"{_plain(program or 'unknown')}{{{told}}}"
        when = int(origin.seen)
        query = urllib.parse.urlencode({"name": name, "from": when, "until": when + 1, "format": "pprof"})
        return f"{self.url}{'&' if urllib.parse.urlsplit(self.url).query else '?'}{query}"


def _send(address: str, profile: bytes) -> Optional[str]:
    """Send a profile. Return what went wrong, or None."""
    request = urllib.request.Request(address, profile, {"Content-Type": "application/octet-stream"}, method="POST")
    try:
        # No proxy and no other place: the profile goes where the user said.
        with _opener().open(request, timeout=SECONDS) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        return f"the server answers {error.code} {error.reason}"[:200]
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"the server cannot be reached: {getattr(error, 'reason', None) or error}"[:200]
    return None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a POST would be sent again without its body."""

    def redirect_request(self, *_args: object, **_values: object) -> None:
        return None


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)


def _plain(text: str) -> str:
    """Return a text of a dump for a label: it cannot end the label."""
    return _LABEL.sub("_", text)[:128]
