"""The reference page and the schema say what the types say."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import fields

from flyball.factory.project.config import ProjectConfig
from flyball.factory.project.config_reader import check_runnable, parse_config
from flyball.factory.project.config_reference import PAGE, SCHEMA, json_schema, main, reference_page

FOLDER = Path(__file__).parents[3] / "docs" / "reference"
AGAIN = "stale; run: python -m flyball.factory.project.config_reference docs/reference"


@pytest.mark.parametrize(("name", "made"), [(PAGE, reference_page()), (SCHEMA, json_schema())])
def test_the_page_and_the_schema_in_the_docs_are_up_to_date(name: str, made: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == made, AGAIN


def test_both_are_written_where_asked(tmp_path: Path) -> None:
    main(tmp_path / "new")
    assert {file.name for file in (tmp_path / "new").iterdir()} == {PAGE, SCHEMA}


def test_every_key_is_described() -> None:
    schema = json.loads(json_schema())
    for part in fields(ProjectConfig):
        if part.name != "areas":
            section = part.type if isinstance(part.type, type) else get_args(part.type)[1]
            for key, about in schema["$defs"][section.__name__]["properties"].items():
                assert about.get("description"), f"{part.name}.{key}"


def test_the_schema_takes_durations_as_people_write_them_and_refuses_unknown_keys() -> None:
    parts = json.loads(json_schema())["$defs"]
    assert parts["GatePart"]["properties"]["timeout_s"]["type"] == ["number", "string"]
    assert all(part["additionalProperties"] is False for part in parts.values())


def test_the_examples_on_the_page_are_right() -> None:
    smallest, areas = re.findall(r"```toml\n(.*?)```", reference_page(), flags=re.DOTALL)
    config = parse_config(tomllib.loads(smallest)).config
    assert config is not None
    check_runnable(config)
    assert parse_config(tomllib.loads(smallest + areas)).config is not None
