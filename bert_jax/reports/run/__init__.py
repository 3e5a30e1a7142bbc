"""The HTML page of `bert-jax report`, and the picture of `bert-jax plot`.

cost.py            time, tokens and energy of a run, measured or estimated
curves.py          the charts of one training, or of several trainings in shared charts
follow.py          a server of the page on the loopback address while the runs train
label_sections.py  scores of each label, confusion, calibration and worst errors of a fine-tuned classifier
page.py            the whole HTML page, composed of its sections
plot.py            the charts of a run as a picture
predictions.py     held-out sequences with masks and the model's predictions
record.py          the content of a work directory, which may be damaged
sections.py        tables of corpus, last values, settings, cost and the command that repeats the run
tiles.py           the five figures of a run that the page shows first
warnings.py        a summary of a run in three sentences, and warnings; add a function to RUN_CHECKS for a warning
write.py           the functions that write or serve the page, with JAX on the CPU
"""
