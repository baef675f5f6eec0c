"""One SQLite file shared by every process of a machine.

store.py    opening, locking, transactions, errors
rows.py     the statements
clock.py    a clock that goes on after a reboot
*.sql       the schema, one numbered step per version
"""
