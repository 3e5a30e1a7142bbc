"""Row numbers -> batches: pure functions of (corpus, seed, row number)."""
