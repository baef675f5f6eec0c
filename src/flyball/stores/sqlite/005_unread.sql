-- What the provider answers to this claim's work is not seen as it comes: its silence is not evidence.
ALTER TABLE claim ADD COLUMN unread INTEGER NOT NULL DEFAULT 0;
