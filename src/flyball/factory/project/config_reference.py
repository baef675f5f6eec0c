"""The reference page and the JSON schema of ``flyball.toml``, made from its types.

    python -m flyball.factory.project.config_reference docs/reference

writes both; a test fails while they do not say what the types say.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import NODEFAULT, inspect
from msgspec.structs import FieldInfo, fields

from flyball.factory.project.config import FILE_NAME, ProjectConfig
from flyball.factory.project.config_reader import DURATION_SUFFIX, expected_words
from flyball.host.atomic_file import replace_file

PAGE = "flyball.toml.md"
SCHEMA = "flyball.schema.json"

_TOP = f"""\
# {FILE_NAME}

Settings of a project, in its folder. `flyball init` makes one, `flyball validate` checks it. A key that is
not named here is refused, with the nearest name. Only `project.id` is required. The smallest project that
lands work by itself:

```toml
[project]
id = "blog"
[gate]
commands = ["make test"]
```

Keys that end in `_s` are durations: seconds as a number, or text such as `"90s"`, `"10m"`, `"1h30m"`.

For editors there is a [JSON schema]({SCHEMA}); `flyball validate --schema` prints it.
"""


def reference_page() -> str:
    sections = [_section(part) for part in fields(ProjectConfig)]
    return _TOP + "".join(f"\n{section}" for section in sections)


def json_schema() -> str:
    schema = msgspec.json.schema(ProjectConfig)
    for part in schema["$defs"].values():
        part["description"] = " ".join(part["description"].split())
        part["properties"] = {key: _plain(key, about) for key, about in part["properties"].items()}
    named = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": FILE_NAME}
    return json.dumps({**named, **schema}, indent=2, ensure_ascii=False) + "\n"


def _plain(key: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """As people write it: durations may be text, and TOML has no null."""
    plain = {name: value for name, value in about.items() if not (name == "default" and value is None)}
    if "anyOf" in plain:
        (only,) = (each for each in plain.pop("anyOf") if each != {"type": "null"})
        plain |= only
    if key.endswith(DURATION_SUFFIX):
        plain["type"] = ["number", "string"]
    return plain


def _section(part: FieldInfo) -> str:
    found, name = inspect.type_info(part.type), part.name
    if isinstance(found, inspect.DictType):
        found, name = found.value_type, f"{name}.<name>"
    if not isinstance(found, inspect.StructType):
        return f"## [{part.name}]\n\n{_description(part)}\n{_examples(part)}"
    rows = "".join(_row(key) for key in fields(found.cls))
    table = f"| key | what it may be | default | meaning |\n|---|---|---|---|\n{rows}"
    about = " ".join((found.cls.__doc__ or "").split())
    return f"## [{name}]\n\n{about}\n\n{table}"


def _row(key: FieldInfo) -> str:
    meaning = _description(key)
    if examples := _extra(key).get("examples", []):
        meaning += " For example " + " or ".join(f"`{json.dumps(example)}`" for example in examples) + "."
    return f"| `{key.name}` | {_cell(expected_words(key))} | {_default(key)} | {_cell(meaning)} |\n"


def _default(key: FieldInfo) -> str:
    if key.required:
        return "required"
    value = key.default if key.default is not NODEFAULT else key.default_factory()
    if value is None:
        return ""
    if key.name.endswith(DURATION_SUFFIX):
        return f"`{value:g}`"
    return f"`{json.dumps(value)}`"


def _description(key: FieldInfo) -> str:
    return str(_extra(key).get("description", ""))


def _examples(part: FieldInfo) -> str:
    lines = [
        f"{name} = {json.dumps(value)}"
        for table in _extra(part).get("examples", [])
        for name, value in table.items()
    ]
    return "\n".join(["", "```toml", f"[{part.name}]", *lines, "```", ""])


def _extra(key: FieldInfo) -> Mapping[str, Any]:
    found = inspect.type_info(key.type)
    return (found.extra_json_schema or {}) if isinstance(found, inspect.Metadata) else {}


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / PAGE, reference_page().encode(), mode=0o644)
    replace_file(folder / SCHEMA, json_schema().encode(), mode=0o644)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
