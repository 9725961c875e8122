"""Which tests use a suite that moves from day to day, or that not every machine reaches (fixtures/debian.py, MOVING).

What fails among them is told and listed with the versions of its packages, and does not make scripts/test --all red: a
kernel that came out yesterday says nothing about today's change. A test is one of them if one of its parameters names
something from such a suite, or if it is marked ``moving``.
"""

from __future__ import annotations

import pytest

from fixtures import debian, mimallocs, musls, userlands
from fixtures.kernel import packages
from tests.quick import parameter_words

_SUITES = frozenset(debian.MOVING)
_LANDS = {name for name, recipe in userlands.RECIPES.items() if recipe.release in _SUITES}

#: Names of userlands, kernels, interpreters and libraries as tests have them in their parameters.
NAMES = _SUITES | _LANDS
NAMES |= {name for name, source in packages.KERNELS.items() if source.suite in _SUITES}
NAMES |= {name for name, at in {**userlands.PYTHONS, **userlands.PYDEBUG}.items() if at in _SUITES}
NAMES |= {version for version, (land, *_) in mimallocs.PACKAGES.items() if land in _SUITES}
NAMES |= {version for release, version in musls.RELEASES.items() if release in _SUITES}


def moves(item: pytest.Item) -> bool:
    """Return whether what the test needs is from a moving suite."""
    if item.get_closest_marker("moving"):
        return True
    return any(part in NAMES for word in parameter_words(item) for part in word.split())
