"""Side-by-side measurements: ``python -m bench``. Every figure in the docs comes from here.

A number of milliseconds says as much about the machine as about the code, so each figure is measured beside
a peer or a bare baseline, the two taking turns in one run (ABAB...), and printed with the ratio of their
medians.

store_cost    acquire+release beside the same SQL statements bare; 10,000 live leases beside 10
contention    eight processes on one pool, beside a JSON-file-per-lease store and portalocker
handoff       a hundred waiting processes on two slots: latency, use of the slots, order
startup       import, exec, hooks, and the memory of a waiting exec, beside bare Python
steps         short work against a limit that moves, through the gateway and a client, beside no flyball
"""
