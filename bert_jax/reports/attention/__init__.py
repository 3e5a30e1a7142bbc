"""The page of `bert-jax attention`.

detail.py      one head in detail: weights on hover, lines, a table
head_roles.py  Attention through all layers
maps.py        heat maps, small ones pooled
page.py        the page: a heat map per head, layer by layer
patterns.py    the published patterns, measured: add a row to PATTERNS
picture.py     one head or all heads as PNG, SVG or PDF
text.py        a text through the model: tokens or words, the weights of all heads, and what follows from them
"""
