from __future__ import annotations

from tests.labs import lab_fixture

lab = lab_fixture()
