"""`bert-jax attention`: what each head of a model reads in one text, as an HTML page.

page.py      a heat map per head, layer by layer
patterns.py  the published patterns, measured: add a row to PATTERNS
"""
