"""--redact: a program hides a secret in many places, and no report has a piece of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.commands.triage import COMMAND, run
from dmods.corefile.target import CoreFile
from dmods.triage.answer import Crash, Line, Triage, left_out
from dmods.triage.options import redact_kernel
from tests.corekit import compile_c, kernel_core

SECRET = "hunter2!"
PROGRAM = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void __assert_fail(const char *, const char *, unsigned, const char *);
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int locked_by;
static void *wait_for_ever(void *name) {
    pthread_setname_np(pthread_self(), name);
    pthread_mutex_lock(&mutex);
    locked_by = gettid();
    return pthread_mutex_lock(&mutex), name;     /* a deadlock: the finding names the thread */
}
/* Until /proc says that the thread sleeps. After it told its id, only the second lock can make it sleep. */
static void await_sleep(void) {
    char path[64], line[512], *state = 0;
    while (!locked_by || !state || state[2] != 'S') {
        usleep(1000);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", locked_by);
        int fd = open(path, O_RDONLY);
        ssize_t size = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
        close(fd);
        line[size < 0 ? 0 : size] = 0;
        state = strrchr(line, ')');
    }
    memset(line, 0, sizeof line);     /* it has the name of the thread, which is the secret */
}
int main(int argc, char **argv) {
    pthread_t thread;
    char *secret = argv[2], *volatile kept[8];
    pthread_setname_np(pthread_self(), secret);
    for (int n = 0; n < 8; n++) kept[n] = strdup(secret);
    pthread_create(&thread, 0, wait_for_ever, secret);
    await_sleep();
    switch (argv[1][0]) {
    case 'a': __assert_fail(secret, "file.c", 7, secret);
    case 'o': memcpy(kept[0] + 24, secret, 8), free(kept[1]); break;
    case 'm': memcpy(kept[0] + 24, secret, 8), raise(SIGQUIT); break;
    case 'p': { char *volatile *at; memcpy(&at, secret, 8); return **at; }
    }
    abort();
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("secret")
    (where / "secret.c").write_text(PROGRAM)
    return compile_c(where / "secret.c", where / "secret", "-w", "-fno-builtin", "-pthread")


def _texts(core: Path, redact: bool) -> str:
    """Return all that triage writes: the page, with the JSON in it, and the text."""
    page = core.with_name(f"{redact}.html")
    words = ["-o", str(page), *(["--redact"] if redact else [])]
    report = run(CoreFile(str(core)), COMMAND.parser().parse_args(words))
    rows = [str(row) for table in report.tables for row in table.rows]
    return page.read_text() + "\n".join(rows)


@pytest.mark.thorough("it makes a core for each place of a secret")
@pytest.mark.parametrize(
    ("how", "kind"),
    [("assertion", "assertion"), ("overrun", "heap-overrun"), ("marred", "heap-damage"), ("pointer", "bad-pointer")],
)
def test_no_piece_of_a_secret_is_told(how: str, kind: str, program: Path, tmp_path: Path) -> None:
    core = kernel_core(program, tmp_path, how, SECRET)
    word = f"{int.from_bytes(SECRET.encode(), 'little'):x}"
    open_, private = _texts(core, False), _texts(core, True)
    assert SECRET in open_
    assert kind in open_
    assert kind in private
    assert SECRET not in private
    assert word[:12] not in private
    assert word[2:] not in private
    assert "deadlock" in private


def test_the_name_of_a_task_is_left_out() -> None:
    crash = Crash("it died", False, [Line("task", "hunter2, pid 77, on CPU 1"), Line("kernel", "6.1, pid 7")])
    found = Triage(crash)
    redact_kernel(found)
    assert found.crash is not None
    assert [line.text for line in found.crash.facts] == [
        f"{left_out('name', 'hunter2')}, pid 77, on CPU 1",
        "6.1, pid 7",
    ]
    assert [one.what for one in found.unknown] == ["--redact"]
