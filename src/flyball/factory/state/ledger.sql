-- What happened to every task, in order. Rows are only ever added.
CREATE TABLE entry (
    id     INTEGER PRIMARY KEY,
    at     REAL NOT NULL,
    run    TEXT NOT NULL,
    task   TEXT NOT NULL,
    step   TEXT NOT NULL,
    mark   TEXT NOT NULL,
    fields TEXT NOT NULL
) STRICT;
CREATE INDEX entry_by_task ON entry (task, id);

-- What people ask of a run while it goes on: drain, resize, stop, nudge.
CREATE TABLE request (
    id     INTEGER PRIMARY KEY,
    at     REAL NOT NULL,
    verb   TEXT NOT NULL,
    task   TEXT NOT NULL,
    fields TEXT NOT NULL
) STRICT;

-- Which request was taken up by which run, and what became of it: outcome is for code, words are for people.
CREATE TABLE answer (
    request INTEGER PRIMARY KEY REFERENCES request (id),
    at      REAL NOT NULL,
    run     TEXT NOT NULL,
    words   TEXT NOT NULL,
    outcome TEXT NOT NULL DEFAULT 'done'
) STRICT;

PRAGMA user_version = 4;
