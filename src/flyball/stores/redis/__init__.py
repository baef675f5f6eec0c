"""One pool on a Redis or Valkey server, shared by many machines.

store.py           the port: one script per verb, one round trip
script_runner.py   runs a script, and gives it a plan where it asks for one (the slow tempo)
pool_image.py      a pool as rows, for planning, setting and looking
records.py         values as text and back
scripts.py         the .lua files put together, each script when it is first needed
connection.py      connections, and what a server must be like; errors.py: its errors in our words
script_connections.py   the connections that scripts go over
plain_client.py    a client without the driver, for a plain address
id_blocks.py       which ids a pool gives out
lua/               the fast tempo: mirrors core/pool/admission.py, core/pool/rate_window.py,
                   core/share_lease/renewal.py, stores/handoff.py and stores/shares.py name by name; each
                   function names its twin, and tests/stores/test_redis_twins.py asks when one side changed
"""
