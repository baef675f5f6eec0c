-- Share leases: slots of a pool that one process subdivides by itself (see core/share_lease/renewal.py).

-- Since when this file remembers everything.
CREATE TABLE life (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    epoch           TEXT NOT NULL,
    since           REAL NOT NULL
);

-- What the share leases of a pool divide. Its terms follow from the settings.
CREATE TABLE pot (
    pool            TEXT PRIMARY KEY,
    cap             INTEGER NOT NULL,   -- as it was when it was last divided
    held            INTEGER NOT NULL,
    nodes           INTEGER NOT NULL,
    learning_until  REAL NOT NULL,
    epoch           TEXT NOT NULL,
    busy            INTEGER NOT NULL,
    active          INTEGER NOT NULL,
    estimate        REAL,
    dirty           INTEGER NOT NULL,
    planned_at      REAL NOT NULL,
    until           REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE share (
    pool            TEXT NOT NULL,
    name            TEXT NOT NULL,      -- node and incarnation
    node            TEXT NOT NULL,
    incarnation     TEXT NOT NULL,
    seq             INTEGER NOT NULL,
    slots           INTEGER NOT NULL,
    owed            INTEGER NOT NULL,
    target          INTEGER NOT NULL,
    in_flight       INTEGER NOT NULL,
    wants           INTEGER NOT NULL,
    weight          REAL NOT NULL,
    draining        INTEGER NOT NULL,
    since           REAL NOT NULL,
    expires_at      REAL NOT NULL,
    successes       INTEGER NOT NULL,
    throttles       INTEGER NOT NULL,
    overloads       INTEGER NOT NULL,
    peak            INTEGER NOT NULL,
    estimate        REAL,
    mailbox         TEXT NOT NULL,
    PRIMARY KEY (pool, name)
) WITHOUT ROWID;

CREATE TRIGGER share_added AFTER INSERT ON share BEGIN
    UPDATE pool SET in_use = in_use + NEW.slots, low_in_use = low_in_use + NEW.slots WHERE name = NEW.pool;
END;

CREATE TRIGGER share_changed AFTER UPDATE OF slots ON share WHEN OLD.slots <> NEW.slots BEGIN
    UPDATE pool SET in_use = in_use + NEW.slots - OLD.slots, low_in_use = low_in_use + NEW.slots - OLD.slots
    WHERE name = NEW.pool;
END;

CREATE TRIGGER share_removed AFTER DELETE ON share BEGIN
    UPDATE pool SET in_use = in_use - OLD.slots, low_in_use = low_in_use - OLD.slots WHERE name = OLD.pool;
END;
