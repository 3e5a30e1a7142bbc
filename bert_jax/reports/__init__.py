"""Pages and texts that a person looks at: a run, a corpus, attention, bias, the model card.

attention/            The page of `bert-jax attention`
corpus/               What `bert-jax inspect` shows, as text and as a page
html/                 Parts of a page
run/                  The page of `bert-jax report`
bias_metric_notes.py  What each figure of bias says, and what it does not say
bias_page.py          The bias of a model as an HTML page, and as JSON
bias_pictures.py      Pictures of bias
card.py               README.md of an export
card_bias.py          What a report of `bert-jax bias --json` says, for the limits of a model card
next_commands.py      Commands that use the model of a finished run, for its console and its report
plots.py              `bert-jax plot`: learning curves; add a row to PANELS for a metric that is no loss or accuracy
provenance.py         What a work directory says about how its model was made
"""
