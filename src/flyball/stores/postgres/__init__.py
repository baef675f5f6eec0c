"""One governor on a PostgreSQL server, shared by many machines.

store.py        the port: the verbs of stores/verbs.py, each one transaction under its pool's lock
step.py         that transaction: begin, lock, work, notify, commit; and what is known when it fails
rows.py         a connection as rows; share_rows.py its share leases; statements.py the SQL
unheard.py      asks that were sent and never answered
server.py       connections, kept and lent out; link.py one of them, what a server must be like
ears.py         a connection that hears channels
ailments.py     its errors in our words
address.py      what FLYBALL_URL says
layout.py       the numbered .sql files, applied once
002_short_way.sql  the grant and the end that nothing stands in the way of: one round trip each
"""
