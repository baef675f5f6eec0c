"""The page's files: each under its name, with a policy, and nothing else of the folder."""

from __future__ import annotations

import pytest

from flyball.service.static import FOLDER
from tests.service.kit import Running


def test_the_page_is_at_the_root(running: Running) -> None:
    answer = running.client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.content == (FOLDER / "index.html").read_bytes()
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert running.client.get("/index.html").status_code == 404


def test_every_script_and_style_is_served_as_what_it_is(running: Running) -> None:
    for path in (*FOLDER.rglob("*.js"), *FOLDER.rglob("*.css")):
        answer = running.client.get(f"/{path.relative_to(FOLDER).as_posix()}")
        assert answer.content == path.read_bytes()
        kind = "text/javascript" if path.suffix == ".js" else "text/css"
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"


def test_a_browser_that_has_it_already_is_told_so(running: Running) -> None:
    tag = running.client.get("/").headers["etag"]
    again = running.client.get("/", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["/__init__.py", "/page", "/page/index.html", "/vendor", "/vendor/"])
def test_nothing_else_is_served(running: Running, path: str) -> None:
    assert running.client.get(path).status_code == 404
