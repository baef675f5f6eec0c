"""LiteLLM, governed: in an environment of its own, because it needs an older openai than the other SDKs.

``make tools`` makes it; without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from flyball import Governor
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import Provider
from tests.tools import LITELLM, ROOT

pytestmark = pytest.mark.skipif(not LITELLM.exists(), reason="no LiteLLM here: make tools")


def test_every_route_of_litellm_takes_one_slot_for_each_call(home: Path) -> None:
    gov, seen = Governor(), list[int]()
    gov.set_pool("lite", cap=8, adaptive=False)

    def look(_: object) -> None:
        seen.extend(pool.in_use for pool in gov.status().pools if pool.name == "lite")

    with Provider(Capacity.parse("8"), sleep=lambda _: None, on_request=look) as provider:
        done = subprocess.run(
            [LITELLM, Path(__file__).with_name("litellm_calls.py"), provider.url],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "src"),
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert lines == [["anthropic", *["Done."] * 4, 0], ["openai", *["Done."] * 4, 0]], done.stderr
    assert seen == [1] * 8
