"""The HTML page and the pictures of `bert-jax attention`.

detail.py      the details of one head: weights shown under the mouse pointer, lines between tokens, a table
head_roles.py  attention rollout and relevance over all layers, and attention between words
maps.py        heat maps of attention weights; a pixel of a small map shows the maximum over several tokens
page.py        the page with a heat map of each head of each layer
patterns.py    the published attention patterns; add a row to PATTERNS for a pattern
picture.py     the attention of one head or of all heads as PNG, SVG or PDF
text.py        the attention weights of all heads in a text, with rollout and relevance
write.py       the functions that write the page or the picture to a file
"""
