-- The grant that nothing stands in the way of, and the end that teaches nothing special, in one round trip
-- each: a pool that is open and fresh, nobody waits, nothing is spaced, windowed, reserved or shared strictly.
-- Most are these. What they leave goes the long way (stores/operations.py); both say the same, the traces see to that.
-- Locks are taken in the order of the long way: the pool first, then what belongs to it.

-- claim_id is NULL where the long way has to be gone, and 0 where it came after its sender had given up.
CREATE FUNCTION fast_admit(
    a_pool text, a_project text, a_name text,
    a_host text, a_boot text, a_pidns bigint, a_pid bigint, a_start bigint,
    a_slots bigint, a_priority bigint, a_model text, a_mailbox text, a_cost text, a_tag bigint,
    a_at double precision,          -- the time; NULL for the server's own
    a_deadline double precision,    -- until when its sender waits
    OUT claim_id bigint, OUT in_use bigint, OUT cap bigint, OUT at double precision
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    fold_every_s CONSTANT double precision := 0.25;
    forever_s CONSTANT double precision := 3600.0;
    id_block CONSTANT bigint := 1000;
    now_at CONSTANT double precision := coalesce(a_at, date_part('epoch', clock_timestamp()));
BEGIN
    at := now_at;
    IF now_at > a_deadline THEN
        claim_id := 0;
        RETURN;
    END IF;
    UPDATE pool AS p SET
        in_use = p.in_use + a_slots,
        low_in_use = CASE WHEN a_priority > 0 THEN p.low_in_use ELSE p.low_in_use + a_slots END,
        next_id = p.next_id + 1,
        bound_at = CASE WHEN p.in_use + a_slots < p.cap THEN p.bound_at ELSE greatest(p.bound_at, now_at) END,
        -- A cap that grows by success must not wait for the plan to get old.
        valid_until = CASE WHEN p.in_use + a_slots < p.cap OR NOT p.by_success OR p.cap >= p.ceiling
            THEN p.valid_until ELSE least(p.valid_until, now_at + fold_every_s) END
    WHERE p.name = a_pool AND p.plain AND NOT p.bounded AND p.waiting = 0 AND p.in_use + a_slots <= p.cap
        AND p.next_id % id_block <> 0 AND p.valid_until > now_at AND p.valid_until <= now_at + 2 * forever_s
    RETURNING p.next_id - 1, p.in_use, p.cap INTO claim_id, in_use, cap;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE project AS u SET in_use = u.in_use + a_slots WHERE u.pool = a_pool AND u.name = a_project;
    IF NOT FOUND THEN
        -- It is new, or was idle and forgotten: the long way writes it down. Looked for only now, because
        -- nearly all are known, and whoever waits for the pool would look twice.
        UPDATE pool AS p SET
            in_use = p.in_use - a_slots,
            low_in_use = CASE WHEN a_priority > 0 THEN p.low_in_use ELSE p.low_in_use - a_slots END,
            next_id = p.next_id - 1
        WHERE p.name = a_pool;
        claim_id := NULL;
        RETURN;
    END IF;
    INSERT INTO claim (id, pool, project, name, host, boot, pidns, pid, start, slots, priority, model, mailbox,
        launcher_pid, asked_at, granted_at, why, level, cost, tag)
    VALUES (claim_id, a_pool, a_project, a_name, a_host, a_boot, a_pidns, a_pid, a_start, a_slots, a_priority,
        a_model, a_mailbox, a_pid, now_at, now_at, '', in_use, a_cost, a_tag);
END $$;

-- Ends a lease that finished. False, and FB001: go the long way.
CREATE FUNCTION fast_end(a_id bigint, a_oks bigint, a_at double precision) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    fold_every_s CONSTANT double precision := 0.25;
    forever_s CONSTANT double precision := 3600.0;
    hold_sample CONSTANT bigint := 8;
    hold_smoothing CONSTANT double precision := 0.2;
    now_at CONSTANT double precision := coalesce(a_at, date_part('epoch', clock_timestamp()));
    of_pool text;
    of_project text;
    held bigint;
    held_low bigint;
    held_s double precision;
BEGIN
    SELECT c.pool, c.project, c.slots, CASE WHEN c.priority > 0 THEN 0 ELSE c.slots END,
        greatest(0, now_at - c.granted_at)
    INTO of_pool, of_project, held, held_low, held_s
    FROM claim AS c WHERE c.id = a_id AND c.granted_at IS NOT NULL AND c.slots > 0;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE pool AS p SET
        in_use = p.in_use - held,
        low_in_use = p.low_in_use - held_low,
        hold_mean_s = CASE WHEN p.in_use < p.cap AND held_s < 1 AND a_id % hold_sample <> 0 THEN p.hold_mean_s
            WHEN p.hold_mean_s = 0 THEN held_s
            ELSE p.hold_mean_s + (held_s - p.hold_mean_s) * hold_smoothing END,
        bound_oks = CASE WHEN p.in_use < p.cap THEN p.bound_oks ELSE p.bound_oks + coalesce(a_oks, 1) END,
        valid_until = CASE WHEN p.in_use < p.cap OR NOT p.by_success OR p.cap >= p.ceiling THEN p.valid_until
            ELSE least(p.valid_until, now_at + fold_every_s) END
    WHERE p.name = of_pool AND p.plain AND p.waiting = 0 AND p.trial_id IS DISTINCT FROM a_id
        AND p.valid_until > now_at AND p.valid_until <= now_at + 2 * forever_s;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE project AS u SET in_use = u.in_use - held WHERE u.pool = of_pool AND u.name = of_project;
    DELETE FROM claim AS c WHERE c.id = a_id;
    IF NOT FOUND THEN
        -- Somebody else ended it while we waited for the pool.
        RAISE EXCEPTION 'ended already' USING ERRCODE = 'FB001';
    END IF;
    RETURN true;
END $$;
