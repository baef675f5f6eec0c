"""Controllers by name, as settings name them."""

from __future__ import annotations

from collections.abc import Mapping

from flyball.core.control.aimd import AimdController
from flyball.core.control.fixed import FixedController
from flyball.core.control.gradient2 import Gradient2Controller
from flyball.core.control.measured import MeasuredController
from flyball.core.control.port import Controller
from flyball.core.settings import CONTROLLERS, PoolSettings
from flyball.errors import invariant

_NAMED: Mapping[str, Controller] = {
    control.name: control
    for control in (
        MeasuredController(),
        AimdController("article"),
        AimdController("koryph"),
        Gradient2Controller(),
        FixedController(),
    )
}
invariant(tuple(_NAMED) == CONTROLLERS, "every controller a person may name exists")


def controller_of(s: PoolSettings) -> Controller:
    return _NAMED[s.controller]
