"""Text -> documents -> corpus -> rows -> batches, in numpy: nothing in here imports jax."""
