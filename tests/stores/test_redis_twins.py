"""The Lua of the Redis store mirrors Python: a change of one side is a question to the other."""

from __future__ import annotations

from tests.stores import twins
from tests.stores.twins import RECORD, lua_parts, parts_of, python_definitions, python_fingerprint, unseen

SCRIPT = """\
-- Begins.
local box = {}

-- Why.
-- twin: stores/handoff.py hand_off, _asks
-- twin: stores/verdicts.py waiting_verdict
function box.open(a)
  if a then return '-- no comment' end -- a comment
end

-- no twin: only here
function box.close() return 1 end
"""


def test_every_part_says_what_it_mirrors_or_why_it_mirrors_nothing() -> None:
    silent = [part.place for part in lua_parts() if bool(part.twins) == part.has_no_twin]
    assert not silent, (
        f"say in a comment above each, `-- twin: file.py name` or `-- no twin: reason`: {silent}"
    )


def test_every_twin_exists() -> None:
    named = {twin: part.place for part in lua_parts() for twin in part.twins}
    missing = [f"{place}: {twin}" for twin, place in named.items() if python_fingerprint(twin) is None]
    assert not missing, f"these name what is not in src/flyball: {missing}"


def test_no_side_changed_without_a_look_at_the_other() -> None:
    changed = unseen(twins.recorded(), twins.present())
    told = "\n".join(changed)
    assert not changed, (
        f"the rule stands in Lua and in Python, and one side changed:\n{told}\nLooked at both? {RECORD}"
    )


def test_a_change_names_both_places() -> None:
    was = {"lib/a.lua f": {"lua": "1", "core/b.py g": "2"}}
    lua, python = "src/flyball/stores/redis/lua/lib/a.lua f", "src/flyball/core/b.py g"
    assert unseen(was, was) == []
    assert unseen(was, {"lib/a.lua f": {"lua": "9", "core/b.py g": "2"}}) == [
        f"{lua} changed: look at {python}"
    ]
    assert unseen(was, {"lib/a.lua f": {"lua": "1", "core/b.py g": "9"}}) == [
        f"{python} changed: look at {lua}"
    ]
    assert len(unseen({}, was)) == len(unseen(was, {})) == 1


def test_a_script_is_cut_into_its_functions() -> None:
    opened, closed = parts_of("lib/box.lua", SCRIPT)
    assert opened.place == "lib/box.lua box.open"
    assert opened.twins == (
        "stores/handoff.py hand_off",
        "stores/handoff.py _asks",
        "stores/verdicts.py waiting_verdict",
    )
    assert closed.has_no_twin
    assert not closed.twins


def test_a_fingerprint_sees_code_and_nothing_else() -> None:
    opened, _ = parts_of("lib/box.lua", SCRIPT)
    reworded = SCRIPT.replace("-- a comment", "-- another").replace("  if a", "    if a")
    assert next(parts_of("lib/box.lua", reworded)).fingerprint == opened.fingerprint
    for change in (SCRIPT.replace("if a", "if not a"), SCRIPT.replace("-- no comment", "-- any comment")):
        assert next(parts_of("lib/box.lua", change)).fingerprint != opened.fingerprint


def test_a_python_twin_is_read_without_its_words() -> None:
    plain = python_definitions("class A:\n    def f(self):\n        return 1\n")["A.f"]
    worded = python_definitions('class A:\n    def f(self):\n        """Says."""\n        return 1  # why\n')
    assert "".join(worded["A.f"].split()) == "".join(plain.split())
