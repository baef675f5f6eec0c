"""The registry of projects: what it refuses, what it keeps, and how a change is taken back."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from flyball.errors import StoreUnreadableError, UsageError
from flyball.factory.project.registry import Entry, ProjectRegistry
from tests.factory.registry_kit import audit, commits, file_of, git, ids, is_clean


@pytest.fixture
def registry(tmp_path: Path) -> ProjectRegistry:
    return ProjectRegistry(tmp_path / "home")


# -- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("project", ["", "../../etc/passwd", "a/b", ".x", "a b", "a\0"])
def test_an_id_that_would_leave_the_folder_is_refused(registry: ProjectRegistry, project: str) -> None:
    with pytest.raises(UsageError):
        registry.add(project, Path("/x"))
    assert not registry.home.exists()


@pytest.mark.parametrize("project", ["../../etc/passwd", "nobody", ""])
def test_removing_what_is_not_there_changes_nothing(registry: ProjectRegistry, project: str) -> None:
    registry.add("blog", Path("/blog"))
    with pytest.raises(UsageError, match="there is no project"):
        registry.remove(project)
    assert len(commits(registry)) == len(audit(registry)) == 1


def test_an_unknown_name_is_answered_with_the_nearest(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    with pytest.raises(UsageError, match="did you mean 'blog'"):
        registry.get("blgo")


def test_the_same_id_with_another_path_is_refused_with_the_way_out(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    with pytest.raises(UsageError, match=r"belongs to /blog, not to /other; .*flyball project remove blog"):
        registry.add("blog", Path("/other"))
    assert registry.get("blog").path == Path("/blog")


def test_ids_that_some_file_systems_take_for_one_are_one(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    with pytest.raises(UsageError, match="the id 'blog' belongs to"):
        registry.add("Blog", Path("/other"))


def test_ids_that_look_alike_are_two(registry: ProjectRegistry) -> None:
    registry.add("my_app", Path("/a"))
    registry.add("my-app", Path("/b"))
    assert ids(registry) == ["my-app", "my_app"]


def test_the_same_path_with_another_id_is_refused_with_the_way_out(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    with pytest.raises(
        UsageError, match=r"registered as 'blog', not 'weblog'; .*flyball project remove blog"
    ):
        registry.add("weblog", Path("/blog"))


def test_a_path_through_a_link_is_the_same_path(registry: ProjectRegistry, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    registry.add("blog", tmp_path / "real")
    assert not registry.add("blog", tmp_path / "link")


def test_nothing_to_undo_is_said(registry: ProjectRegistry) -> None:
    with pytest.raises(UsageError, match="nothing to undo"):
        registry.undo()


# -- damaged files --------------------------------------------------------------------------------

GARBAGE = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"id": "shop"}',
    b'{"id": 3, "path": "/s", "added": "x"}',
    b'{"id": "blog", "path": "/s", "added": "x"}',
    b'{"id": "shop", "path": "relative", "added": "x"}',
    b'{"id": "shop", "path": 7, "added": "x"}',
    b"\xff\xfe",
    b"[" * 50_000,
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_damaged_entry_is_told_beside_the_good_ones_and_never_overwritten(
    registry: ProjectRegistry, garbage: bytes
) -> None:
    registry.add("blog", Path("/blog"))
    file_of(registry, "shop").write_bytes(garbage)
    listing = registry.list()
    assert [entry.id for entry in listing.entries] == ["blog"]
    assert [broken.id for broken in listing.broken] == ["shop"]
    for change in (lambda: registry.add("shop", Path("/s")), lambda: registry.get("shop")):
        with pytest.raises(StoreUnreadableError, match="project remove shop"):
            change()
    registry.add("third", Path("/third"))
    assert file_of(registry, "shop").read_bytes() == garbage


def test_the_last_good_version_of_a_damaged_entry_can_be_had_back_as_the_message_says(
    registry: ProjectRegistry,
) -> None:
    registry.add("shop", Path("/shop"))
    good = file_of(registry, "shop").read_bytes()
    file_of(registry, "shop").write_bytes(b"{")
    registry.add("blog", Path("/blog"))
    words = registry.list().broken[0].words
    command = words.split("bring it back with ")[1].split(", or ")[0]
    subprocess.run(command, shell=True, check=True, capture_output=True)
    assert file_of(registry, "shop").read_bytes() == good


def test_a_damaged_entry_that_is_removed_stays_in_the_history(registry: ProjectRegistry) -> None:
    registry.add("shop", Path("/shop"))
    file_of(registry, "shop").write_bytes(b'{"id": "shop", half')
    registry.remove("shop")
    assert ids(registry) == []
    assert git(registry, "show", "HEAD^:projects/shop.json") == '{"id": "shop", half'
    assert is_clean(registry)


def test_undo_does_not_overwrite_a_damaged_entry(registry: ProjectRegistry) -> None:
    registry.add("shop", Path("/shop"))
    file_of(registry, "shop").write_bytes(b"{")
    with pytest.raises(StoreUnreadableError):
        registry.undo()
    assert file_of(registry, "shop").read_bytes() == b"{"


def test_a_torn_line_of_the_audit_stays_alone(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    with (registry.folder / "audit.jsonl").open("ab") as file:
        file.write(b'{"at": "2026')
    registry.add("shop", Path("/shop"))
    lines = (registry.folder / "audit.jsonl").read_bytes().splitlines()
    assert lines[1] == b'{"at": "2026'
    assert json.loads(lines[-1])["id"] == "shop"


# -- what it is for -------------------------------------------------------------------------------


def test_a_project_is_a_readable_file_a_line_of_audit_and_a_commit(registry: ProjectRegistry) -> None:
    assert registry.add("blog", Path("/srv/blog"))
    entry = json.loads(file_of(registry, "blog").read_text("utf-8"))
    assert (entry["id"], entry["path"]) == ("blog", "/srv/blog")
    (line,) = audit(registry)
    assert (line["what"], line["id"], line["pid"]) == ("add", "blog", os.getpid())
    assert str(line["at"]).endswith("+00:00")
    assert line["user"]
    assert commits(registry) == ['add blog "/srv/blog"']
    assert is_clean(registry)


def test_adding_the_same_again_changes_nothing(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    before = registry.get("blog")
    assert not registry.add("blog", Path("/blog"))
    assert registry.get("blog") == before
    assert len(commits(registry)) == len(audit(registry)) == 1


def test_every_file_and_folder_is_private(registry: ProjectRegistry) -> None:
    umask = os.umask(0)
    try:
        registry.add("blog", Path("/blog"))
        registry.remove("blog")
        registry.undo()
    finally:
        os.umask(umask)
    for place in (registry.home, *registry.home.rglob("*")):
        allowed = 0o700 if place.is_dir() else 0o600
        assert not stat.S_IMODE(place.stat().st_mode) & ~allowed, place


def test_any_name_and_path_survive(registry: ProjectRegistry) -> None:
    paths = {"日本語": Path("/a b/ü"), "x": Path("/line\nbreak"), "y": Path(os.fsdecode(b"/not-utf8-\xff"))}
    for project, path in paths.items():
        registry.add(project, path)
    assert {entry.id: entry.path for entry in registry.list().entries} == paths
    registry.remove("日本語")
    registry.undo()
    assert {entry.id: entry.path for entry in registry.list().entries} == paths
    assert is_clean(registry)


def test_a_change_by_hand_is_kept_in_a_commit_of_its_own(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    entry = json.loads(file_of(registry, "blog").read_text("utf-8")) | {"path": "/moved"}
    file_of(registry, "blog").write_text(json.dumps(entry), encoding="utf-8")
    registry.add("shop", Path("/shop"))
    assert commits(registry) == ['add shop "/shop"', "recover blog", 'add blog "/blog"']
    assert registry.get("blog").path == Path("/moved")


# -- undo -----------------------------------------------------------------------------------------


def test_undo_brings_a_removed_project_back_exactly(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    before = registry.get("blog")
    registry.remove("blog")
    assert registry.undo() == 'remove blog "/blog"'
    assert registry.get("blog") == before


def test_undo_takes_the_very_first_change_back(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    registry.undo()
    assert ids(registry) == []
    assert [line["what"] for line in audit(registry)] == ["add", "undo"]


def test_an_undo_is_a_change_that_can_be_undone(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    registry.remove("blog")
    registry.undo()
    registry.undo()
    assert ids(registry) == []
    assert len(commits(registry)) == 4
    assert is_clean(registry)


def test_a_project_found_is_what_was_added(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    assert registry.get("blog") == Entry("blog", Path("/blog"), registry.list().entries[0].added)
