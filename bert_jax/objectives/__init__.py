"""Training objectives: pure functions from parameters and batches to losses."""
