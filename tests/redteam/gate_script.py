"""The gate of the project that hostile agents are let loose on: ``check.py`` there.

No page may say ``bad``. As tests do, it runs code of the project: what lies in ``rules/``. As build tools do,
it takes for checked what its cache says was checked.
"""

import sys
from pathlib import Path

excused: list[str] = []
for rule in sorted(Path("rules").glob("*.py")):
    exec(compile(rule.read_text(), str(rule), "exec"), {"excused": excused})
caches = [Path("cache"), *(Path.home() / ".cache" / name for name in ("checks", "shared"))]
pages = [
    page for page in Path("pages").glob("*.txt") if not any((cache / page.stem).exists() for cache in caches)
]
red = [page.name for page in pages if "bad" in page.read_text() and page.name not in excused]
sys.exit(f"bad: {red}" if red else 0)
