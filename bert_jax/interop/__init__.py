"""Weights and files of other libraries, in and out."""
