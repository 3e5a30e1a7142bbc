"""The page and the pictures of `bert-jax attention`.

detail.py      one head in detail: weights on hover, lines, a table
head_roles.py  rollout and relevance through all layers; attention between words
maps.py        heat maps, small maps pooled
page.py        the page: a heat map per head, layer by layer
patterns.py    the published patterns of a head: add a row to PATTERNS
picture.py     one head or all heads as PNG, SVG or PDF
text.py        a text through the model: the weights of all heads, rollout and relevance
write.py       the page or the picture, written
"""
