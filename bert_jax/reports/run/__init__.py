"""The page of `bert-jax report`.

curves.py       the charts of one training, or of several on top of each other
follow.py       the page served on the loopback address while its runs grow
page.py         the parts put together
predictions.py  Held-out sequences as the model reads them, with its guesses
record.py       what a work directory holds, read without trusting it
sections.py     corpus, end values, settings, cost, how to train it again, as tables
warnings.py     A run in three sentences, and what looks wrong with it
write.py        the page written or served, on the CPU
"""
