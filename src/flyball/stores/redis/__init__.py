"""One pool on a Redis or Valkey server, shared by many machines.

store.py        the port: one script per verb, one round trip
planner.py      the slow tempo: what a script returns when a plan is needed, and the plan it gets back
image.py        a pool as rows, for planning, setting and looking
records.py      values as text and back
scripts.py      the .lua files put together, loaded once
server.py       connections, what a server must be like, its errors in our words
lua/            the fast tempo: mirrors core/admit.py, core/window.py and stores/handout.py name by name
"""
