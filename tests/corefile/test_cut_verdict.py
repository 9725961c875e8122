"""Verdicts about dumps that are cut: the first line says that not all was looked at."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fixtures import answers, cores


def test_triages_first_line_counts_the_checks_that_could_not_run(tmp_path: Path) -> None:
    whole = cores.take("anchors", how="gcore").core
    first = answers.printed("triage", whole).splitlines()[0]
    assert "could not run" not in first
    cut = tmp_path / "core"
    shutil.copy(whole, cut)
    os.truncate(cut, cut.stat().st_size // 2)
    first = answers.printed("triage", cut).splitlines()[0]
    assert first.startswith("No finding")
    assert "could not run (see below)" in first
