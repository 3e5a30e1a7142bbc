"""The page and the pictures of `bert-jax attention`.

detail.py      the details of one head: weights under the mouse pointer, lines, a table
head_roles.py  rollout and relevance over all layers; attention between words
maps.py        heat maps; small maps show the maximum over several tokens
page.py        the page with a heat map of each head of each layer
patterns.py    the published attention patterns; add a row to PATTERNS for a pattern
picture.py     one head or all heads as PNG, SVG or PDF
text.py        the attention weights of all heads in a text, with rollout and relevance
write.py       writes the page or the picture to a file
"""
