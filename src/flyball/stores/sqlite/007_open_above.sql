-- Closed for the sake of a usage window: asks of a priority above this are admitted all the same.
ALTER TABLE pool ADD COLUMN open_above INTEGER;
