"""``python -m flyball``."""

from __future__ import annotations

import sys

from flyball.cli.main import main

sys.exit(main())
