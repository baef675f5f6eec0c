-- What one machine's governor knows. Times are seconds on the store's clock (see clock.py).
-- A claim is an ask (granted_at IS NULL) or the lease it became, under one id that is never reused.

-- What only the plan reads is kept apart from the row that every grant and release rewrites.
CREATE TABLE mind (
    pool            TEXT PRIMARY KEY,
    settings        TEXT NOT NULL,      -- JSON: only what a person named
    memory          TEXT NOT NULL       -- JSON: what the pool learned
) WITHOUT ROWID;

CREATE TABLE pool (
    name            TEXT PRIMARY KEY,
    -- limits: written by the plan, compared by admission
    version         INTEGER NOT NULL,
    valid_until     REAL NOT NULL,
    cap             INTEGER NOT NULL,
    ceiling         INTEGER NOT NULL,
    reserve         INTEGER NOT NULL,
    phase           TEXT NOT NULL,
    closed_until    REAL,
    spacing_s       REAL NOT NULL,
    spacing_jitter  REAL NOT NULL,
    share           TEXT NOT NULL,
    ageing_s        REAL NOT NULL,
    -- meters: written by admission, folded by the plan
    next_grant_at   REAL NOT NULL,
    bound_at        REAL NOT NULL,
    capped          INTEGER NOT NULL,
    bound_oks       INTEGER NOT NULL,
    trial_id        INTEGER,
    trial_at        REAL NOT NULL,
    trial_project   TEXT NOT NULL,
    trial_name      TEXT NOT NULL,
    hold_mean_s     REAL NOT NULL,
    high            INTEGER NOT NULL,
    turn            REAL NOT NULL,
    work            REAL NOT NULL,
    work_tokens     REAL NOT NULL,
    windows         TEXT NOT NULL,      -- JSON, empty for none
    -- counts: written by the triggers below and nowhere else
    in_use          INTEGER NOT NULL DEFAULT 0,
    low_in_use      INTEGER NOT NULL DEFAULT 0,
    waiting         INTEGER NOT NULL DEFAULT 0,
    watcher_id      INTEGER NOT NULL DEFAULT 0,
    next_id         INTEGER NOT NULL    -- the next claim's, from a block of its own (see sequence)
) WITHOUT ROWID;

-- Ids are never reused. Pools take them by the block, so that a claim costs no write of a counter.
CREATE TABLE sequence (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    next_block      INTEGER NOT NULL
);
INSERT INTO sequence VALUES (1, 0);

CREATE TABLE project (
    pool            TEXT NOT NULL,
    name            TEXT NOT NULL,
    weight          REAL NOT NULL DEFAULT 1,
    maximum         INTEGER,
    share           INTEGER,
    turn            REAL NOT NULL DEFAULT 0,
    in_use          INTEGER NOT NULL DEFAULT 0,
    waiting         INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (pool, name)
) WITHOUT ROWID;

CREATE TABLE claim (
    id              INTEGER PRIMARY KEY,
    pool            TEXT NOT NULL,
    project         TEXT NOT NULL,
    name            TEXT NOT NULL,
    host            TEXT NOT NULL,
    boot            TEXT NOT NULL,
    pidns           INTEGER NOT NULL,
    pid             INTEGER NOT NULL,
    start           INTEGER NOT NULL,
    slots           INTEGER NOT NULL,
    priority        INTEGER NOT NULL,
    resources       TEXT,               -- JSON, NULL for none
    model           TEXT NOT NULL,
    mailbox         TEXT NOT NULL,
    launcher_pid    INTEGER NOT NULL,
    asked_at        REAL NOT NULL,
    granted_at      REAL,
    expires_at      REAL,
    why             TEXT NOT NULL,      -- what it was told when it had to wait
    level           INTEGER NOT NULL,   -- slots of the pool in use right after it was granted
    cost            TEXT,               -- JSON: what it expects to use of the windows, NULL for nothing
    marks           TEXT                -- JSON: what of each window had been spent when it was granted
);

-- Each index serves one question, and only the rows it is about: none is touched by a grant without waiting.
CREATE INDEX claim_line ON claim (pool, project, priority, id) WHERE granted_at IS NULL;
CREATE INDEX claim_waiting ON claim (pool, id) WHERE granted_at IS NULL;
CREATE INDEX claim_expiry ON claim (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX claim_resources ON claim (id) WHERE resources IS NOT NULL;

CREATE TRIGGER claim_added AFTER INSERT ON claim BEGIN
    UPDATE pool SET
        in_use = in_use + iif(NEW.granted_at IS NULL, 0, NEW.slots),
        low_in_use = low_in_use + iif(NEW.granted_at IS NULL OR NEW.priority > 0, 0, NEW.slots),
        waiting = waiting + (NEW.granted_at IS NULL),
        next_id = NEW.id + 1
    WHERE name = NEW.pool;
    UPDATE project SET
        in_use = in_use + iif(NEW.granted_at IS NULL, 0, NEW.slots),
        waiting = waiting + (NEW.granted_at IS NULL)
    WHERE pool = NEW.pool AND name = NEW.project;
END;

CREATE TRIGGER claim_granted AFTER UPDATE OF granted_at ON claim
WHEN OLD.granted_at IS NULL AND NEW.granted_at IS NOT NULL BEGIN
    UPDATE pool SET
        in_use = in_use + NEW.slots,
        low_in_use = low_in_use + iif(NEW.priority > 0, 0, NEW.slots),
        waiting = waiting - 1
    WHERE name = NEW.pool;
    UPDATE project SET in_use = in_use + NEW.slots, waiting = waiting - 1
    WHERE pool = NEW.pool AND name = NEW.project;
END;

CREATE TRIGGER claim_removed AFTER DELETE ON claim BEGIN
    UPDATE pool SET
        in_use = in_use - iif(OLD.granted_at IS NULL, 0, OLD.slots),
        low_in_use = low_in_use - iif(OLD.granted_at IS NULL OR OLD.priority > 0, 0, OLD.slots),
        waiting = waiting - (OLD.granted_at IS NULL)
    WHERE name = OLD.pool;
    UPDATE project SET
        in_use = in_use - iif(OLD.granted_at IS NULL, 0, OLD.slots),
        waiting = waiting - (OLD.granted_at IS NULL)
    WHERE pool = OLD.pool AND name = OLD.project;
END;

CREATE TABLE demand (
    pool            TEXT NOT NULL,
    project         TEXT NOT NULL,
    host            TEXT NOT NULL,
    boot            TEXT NOT NULL,
    pidns           INTEGER NOT NULL,
    pid             INTEGER NOT NULL,
    start           INTEGER NOT NULL,
    until           REAL NOT NULL,
    PRIMARY KEY (pool, project, host, boot, pidns, pid, start)
) WITHOUT ROWID;

CREATE TABLE machine (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    settings        TEXT NOT NULL
);
INSERT INTO machine VALUES (1, '{}');

-- Which boot the clock counts in, and the last moment it was seen: a reboot continues from there.
CREATE TABLE clock (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    boot            TEXT NOT NULL,
    offset_s        REAL NOT NULL,
    seen_at         REAL NOT NULL,      -- store time
    seen_wall       REAL NOT NULL       -- wall clock, used only to guess how long the machine was off
);
