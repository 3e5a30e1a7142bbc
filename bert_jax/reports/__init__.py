"""Pages, texts and pictures for people: a run, a corpus, attention, bias, the model card.

attention/            the HTML page and the pictures of `bert-jax attention`
corpus/               `bert-jax inspect`: a corpus as text and as an HTML page
html/                 elements, charts and style of a page
run/                  the HTML page of `bert-jax report`, and the picture of `bert-jax plot`
bias_metric_notes.py  the meaning and the limits of each figure of bias, in sentences
bias_page.py          the bias of a model as an HTML page with pictures, and as JSON
card.py               README.md of an export
figure.py             a matplotlib figure that is saved to a file
next_commands.py      commands for the use of the model of a finished run
provenance.py         the origin of a model (data, training, scores, cost), as its work directory records it
"""
