-- Share leases: slots of a pool that one process subdivides by itself (see core/share_lease/renewal.py).

-- Since when this space remembers everything.
CREATE TABLE life (
    one             boolean PRIMARY KEY CHECK (one),
    epoch           text NOT NULL,
    since           double precision NOT NULL
);

-- What the share leases of a pool divide. Its terms follow from the settings.
CREATE TABLE pot (
    pool            text COLLATE "C" PRIMARY KEY,
    cap             bigint NOT NULL,
    held            bigint NOT NULL,
    nodes           bigint NOT NULL,
    learning_until  double precision NOT NULL,
    epoch           text NOT NULL,
    busy            bigint NOT NULL,
    active          bigint NOT NULL,
    estimate        double precision,
    dirty           boolean NOT NULL,
    planned_at      double precision NOT NULL,
    until           double precision NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE TABLE share (
    pool            text COLLATE "C" NOT NULL,
    name            text COLLATE "C" NOT NULL,  -- node and incarnation
    node            text COLLATE "C" NOT NULL,
    incarnation     text COLLATE "C" NOT NULL,
    seq             bigint NOT NULL,
    slots           bigint NOT NULL,
    owed            bigint NOT NULL,
    target          bigint NOT NULL,
    in_flight       bigint NOT NULL,
    wants           bigint NOT NULL,
    weight          double precision NOT NULL,
    draining        boolean NOT NULL,
    since           double precision NOT NULL,
    expires_at      double precision NOT NULL,
    successes       bigint NOT NULL,
    throttles       bigint NOT NULL,
    overloads       bigint NOT NULL,
    peak            bigint NOT NULL,
    estimate        double precision,
    mailbox         text NOT NULL,
    PRIMARY KEY (pool, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
