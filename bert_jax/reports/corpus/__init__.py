"""What `bert-jax inspect` shows, as text and as a page.

checks.py          Likely problems of a corpus and of its sequences, each as a line that says what to do about it
inspect.py         A corpus before training
inspect_text.py    The figures of a corpus as text and as JSON
page.py            figures and warnings of the corpus, the filters, the sequences page by page
sequences.py       one sequence as HTML: tokens, masks, pairs, packed examples
sequences_text.py  Sequences as text
warnings.py        What looks wrong with one sequence
"""
