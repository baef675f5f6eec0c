-- Asks under a key, so that one asked twice is answered as the first time (see core/model.Receipt).
CREATE TABLE receipt (
    pool            text COLLATE "C" NOT NULL,
    key             text COLLATE "C" NOT NULL,
    fingerprint     text NOT NULL,
    claim_id        bigint NOT NULL,
    granted         boolean NOT NULL,
    in_use          bigint NOT NULL,
    cap             bigint NOT NULL,
    until           double precision NOT NULL,
    PRIMARY KEY (pool, key)
);
CREATE INDEX receipt_until ON receipt (pool, until);
CREATE INDEX receipt_claim ON receipt (claim_id);

-- Small texts that the store keeps for whoever uses it.
CREATE TABLE note (
    name            text COLLATE "C" PRIMARY KEY,
    text            text NOT NULL
);
