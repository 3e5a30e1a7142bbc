"""The page of `bert-jax report`, and the picture of `bert-jax plot`.

cost.py            time, tokens and energy, measured or estimated
curves.py          the charts of one training, or of several on top of each other
follow.py          the page served on the loopback address while its runs grow
label_sections.py  scores of each label, confusion, calibration and worst errors of a fine-tuned classifier
page.py            the whole page, from its sections
plot.py            the charts as a picture
predictions.py     held-out sequences as the model reads them, with its predictions
record.py          the content of a work directory, read without trusting it
sections.py        corpus, last values, settings, cost and the command that trains the run again, as tables
warnings.py        a summary of a run in three sentences, and warnings: add a function to RUN_CHECKS
write.py           the page written or served, on the CPU
"""
