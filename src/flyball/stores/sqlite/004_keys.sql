-- Asks under a key, so that one asked twice is answered as the first time (see core/model.Receipt).
CREATE TABLE receipt (
    pool            TEXT NOT NULL,
    key             TEXT NOT NULL,
    fingerprint     TEXT NOT NULL,
    claim_id        INTEGER NOT NULL,
    granted         INTEGER NOT NULL,
    in_use          INTEGER NOT NULL,
    cap             INTEGER NOT NULL,
    until           REAL NOT NULL,
    PRIMARY KEY (pool, key)
) WITHOUT ROWID;
CREATE INDEX receipt_until ON receipt (until);
CREATE INDEX receipt_claim ON receipt (claim_id);

-- Small texts that the store keeps for whoever uses it.
CREATE TABLE note (
    name            TEXT PRIMARY KEY,
    text            TEXT NOT NULL
) WITHOUT ROWID;
