"""The classic tasks: their data, rows, predictions and scores; never imports jax."""
