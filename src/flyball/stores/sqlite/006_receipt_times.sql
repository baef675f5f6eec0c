-- When the claim was asked for: with its id it names the claim, also to an ask that is repeated after its end.
ALTER TABLE receipt ADD COLUMN asked_at REAL NOT NULL DEFAULT 0;
