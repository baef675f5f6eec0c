"""One governor on a PostgreSQL server, shared by many machines.

store.py             the port: the verbs of stores/operations.py, each one transaction under its pool's lock
opening.py           the store behind an address; the driver is imported here
transaction.py       begin, lock, work, notify, commit
lost_replies.py      asks that were sent and never answered: what became of them
rows.py              a connection as rows; queries.py the SQL
connection_pool.py   connections, kept and lent out, one that listens, and the numbered .sql files
connection.py        one connection, and what a server must be like
errors.py            its errors in our words
address.py           what FLYBALL_URL says
002_short_way.sql    the grant and the end that nothing stands in the way of: one round trip each
"""
