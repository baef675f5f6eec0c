-- What happened lately, for `flyball why` and `flyball status`. Bounded by the writer.
CREATE TABLE fact (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    at              REAL NOT NULL,
    pool            TEXT NOT NULL,
    kind            TEXT NOT NULL,
    words           TEXT NOT NULL,
    project         TEXT NOT NULL,
    name            TEXT NOT NULL,
    pid             INTEGER NOT NULL
);
