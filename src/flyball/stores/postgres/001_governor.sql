-- What a governor on a server knows. Times are seconds since 1970 on the server's clock.
-- A claim is an ask (granted_at IS NULL) or the lease it became, under one id that is never reused.
-- Names sort by their bytes, as they do everywhere else; a database's own order is left aside.

CREATE TABLE layout (
    version         integer NOT NULL            -- the number of the last script that was applied
);
INSERT INTO layout VALUES (0);

-- What only the plan reads is kept apart from the row that every grant and release rewrites.
CREATE TABLE mind (
    pool            text COLLATE "C" PRIMARY KEY,
    settings        text NOT NULL,              -- JSON: only what a person named
    memory          text NOT NULL               -- JSON: what the pool learned
);

-- Its row is the pool's lock. Half of each page stays free, so that a new version of a row finds room beside
-- the old one and no index has to know.
CREATE TABLE pool (
    name            text COLLATE "C" PRIMARY KEY,
    -- limits: written by the plan, compared by admission
    version         bigint NOT NULL,
    valid_until     double precision NOT NULL,
    cap             bigint NOT NULL,
    ceiling         bigint NOT NULL,
    reserve         bigint NOT NULL,
    phase           text NOT NULL,
    closed_until    double precision,
    spacing_s       double precision NOT NULL,
    spacing_jitter  double precision NOT NULL,
    share           text NOT NULL,
    ageing_s        double precision NOT NULL,
    -- meters: written by admission, folded by the plan
    next_grant_at   double precision NOT NULL,
    bound_at        double precision NOT NULL,
    capped          boolean NOT NULL,
    bound_oks       bigint NOT NULL,
    trial_id        bigint,
    trial_at        double precision NOT NULL,
    trial_project   text NOT NULL,
    trial_name      text NOT NULL,
    hold_mean_s     double precision NOT NULL,
    high            bigint NOT NULL,
    turn            double precision NOT NULL,
    work            double precision NOT NULL,
    work_tokens     double precision NOT NULL,
    windows         text NOT NULL,              -- JSON, empty for none
    -- counts: they move in the statement that moves a claim, and nowhere else
    in_use          bigint NOT NULL DEFAULT 0,
    low_in_use      bigint NOT NULL DEFAULT 0,
    waiting         bigint NOT NULL DEFAULT 0,
    watcher_id      bigint NOT NULL DEFAULT 0,
    next_id         bigint NOT NULL,            -- the next claim's, from a block of its own (see block)
    -- for the short way (002_short_way.sql)
    plain           boolean NOT NULL,           -- the cap is all that an ask has to be compared with
    bounded         boolean NOT NULL,           -- some projects have a maximum
    by_success      boolean NOT NULL            -- its controller grows the cap by successes
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Ids are never reused. Pools take them by the block, so that a claim costs no write of a counter.
CREATE TABLE block (
    one             boolean PRIMARY KEY CHECK (one),
    next_block      bigint NOT NULL
);
INSERT INTO block VALUES (true, 0);

CREATE TABLE project (
    pool            text COLLATE "C" NOT NULL,
    name            text COLLATE "C" NOT NULL,
    weight          double precision NOT NULL DEFAULT 1,
    maximum         bigint,
    share           bigint,
    turn            double precision NOT NULL DEFAULT 0,
    in_use          bigint NOT NULL DEFAULT 0,
    waiting         bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (pool, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE TABLE claim (
    id              bigint PRIMARY KEY,
    pool            text COLLATE "C" NOT NULL,
    project         text COLLATE "C" NOT NULL,
    name            text NOT NULL,
    host            text COLLATE "C" NOT NULL,
    boot            text COLLATE "C" NOT NULL,
    pidns           bigint NOT NULL,
    pid             bigint NOT NULL,
    start           bigint NOT NULL,
    slots           bigint NOT NULL,
    priority        bigint NOT NULL,
    resources       text,                       -- JSON, NULL for none
    model           text NOT NULL,
    mailbox         text NOT NULL,
    launcher_pid    bigint NOT NULL,
    asked_at        double precision NOT NULL,
    granted_at      double precision,
    expires_at      double precision,
    why             text NOT NULL,              -- what it was told when it had to wait
    level           bigint NOT NULL,            -- slots of the pool in use right after it was granted
    cost            text,                       -- JSON: what it expects to use of the windows, NULL for nothing
    marks           text,                       -- JSON: what of each window had been spent when it was granted
    tag             bigint NOT NULL             -- by which its asker finds it, if it never heard the answer
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 2000);

-- Each index serves one question, and only the rows it is about: none is touched by a grant without waiting.
CREATE INDEX claim_line ON claim (pool, project, priority, id) WHERE granted_at IS NULL;
CREATE INDEX claim_waiting ON claim (pool, id) WHERE granted_at IS NULL;
CREATE INDEX claim_expiry ON claim (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE demand (
    pool            text COLLATE "C" NOT NULL,
    project         text COLLATE "C" NOT NULL,
    host            text COLLATE "C" NOT NULL,
    boot            text COLLATE "C" NOT NULL,
    pidns           bigint NOT NULL,
    pid             bigint NOT NULL,
    start           bigint NOT NULL,
    until           double precision NOT NULL,
    PRIMARY KEY (pool, project, host, boot, pidns, pid, start)
);

-- Hosts that look after their leases of a pool: when each was last heard, and last looked at its processes.
CREATE TABLE host (
    pool            text COLLATE "C" NOT NULL,
    host            text COLLATE "C" NOT NULL,
    boot            text COLLATE "C" NOT NULL,
    pidns           bigint NOT NULL,
    heard_at        double precision NOT NULL,
    looked_at       double precision NOT NULL,
    due             boolean NOT NULL,           -- whoever was heard last looks now
    PRIMARY KEY (pool, host, boot, pidns)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- What happened lately, for `flyball why` and `flyball status`. Bounded by tell.
CREATE TABLE fact (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    of_ask          boolean NOT NULL,           -- about one ask: they come by the thousand
    at              double precision NOT NULL,
    pool            text NOT NULL,
    kind            text NOT NULL,
    words           text NOT NULL,
    project         text NOT NULL,
    name            text NOT NULL,
    pid             bigint NOT NULL
);
CREATE INDEX fact_kind ON fact (of_ask, id);

-- An advisory lock for one of our tables; the upper half keeps away from other people's.
CREATE FUNCTION lock_of(of_table regclass) RETURNS bigint LANGUAGE sql STABLE AS
    $$ SELECT (1718384994::bigint << 32) | of_table::oid::bigint $$;

-- Tells a fact; now and then the oldest are forgotten, by one at a time.
CREATE FUNCTION tell(
    of_ask boolean, at double precision, pool text, kind text, words text, project text, name text, pid bigint,
    asks_kept bigint, pools_kept bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    told bigint;
BEGIN
    INSERT INTO fact (of_ask, at, pool, kind, words, project, name, pid)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id INTO told;
    IF told % 256 = 0 AND pg_try_advisory_xact_lock(lock_of('fact')) THEN
        DELETE FROM fact AS old WHERE old.of_ask AND old.id <= (
            SELECT kept.id FROM fact AS kept WHERE kept.of_ask ORDER BY kept.id DESC LIMIT 1 OFFSET asks_kept);
        DELETE FROM fact AS old WHERE NOT old.of_ask AND old.id <= (
            SELECT kept.id FROM fact AS kept WHERE NOT kept.of_ask ORDER BY kept.id DESC LIMIT 1 OFFSET pools_kept);
    END IF;
END $$;
