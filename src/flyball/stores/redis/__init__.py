"""One pool on a Redis or Valkey server, shared by many machines.

store.py        the port: one script per verb, one round trip
planner.py      the slow tempo: what a script returns when a plan is needed, and the plan it gets back
image.py        a pool as rows, for planning, setting and looking
records.py      values as text and back; share_records.py: those of share leases
scripts.py      the .lua files put together, loaded once
server.py       connections, and what a server must be like; ailments.py: its errors in our words
lines.py        the way a script goes
lua/            the fast tempo: mirrors core/admit.py, core/window.py, core/renewal.py, stores/handout.py and
                stores/shares.py name by name
"""
