"""Pretrain, fine-tune, evaluate and export BERT-family encoders in JAX.

What lives where; imports run one way, downwards (tests/test_layout.py):

    __main__.py  arguments.py        the command line: one verb a subcommand, and what each takes
    pretrain.py  finetune.py         a verb put together; plot.py draws a run
    predict.py  embed.py  fill_mask.py  what a model directory is used for (model_directory.py opens one)
    export.py                        models out
    inspect.py  inspect_text.py      a corpus and its rows to look at (rows_text.py, corpus_checks.py)
    dryrun.py  dryrun_text.py        what a recipe needs before it is run, as numbers and as a table
    weights.py  task_data.py         what training starts from; a task's sets as batches and scores
    loop.py                          the loop around the step
    train.py  evaluate.py            state and step; the same loss without the update
    inference.py                     rows of any length -> a model's outputs
    workdir.py                       a run's directory
    recipes.py                       published recipes, which configs/ starts from
    interop/                         weights and files of other libraries
    tasks/                           classic tasks: data, rows, predictions, scores; never imports jax
    objectives/                      models and labels -> loss
    models/                          batch -> arrays; linen stays in here
    data/                            text -> rows; never imports jax
      sources/                         files of all formats -> documents
      tokenizer/                       text -> ids; vocabularies trained and read
      preparation/                     documents -> corpus, here or by Apache Beam
      corpus.py  mixture.py            the store; several as one (staging.py fetches one, statistics.py counts)
      rows/                            row numbers -> batches: order, pairing, masks, packing
    optim.py  phases.py              updates; which step reads which rows at what rate
    checkpoint.py                    Orbax behind one door
    sharding.py  peak.py             devices: the mesh and what lies where; their peak speed
    topology.py  hlo.py              a TPU slice that is not there; a compiled program's text,
    hlo_cost.py  estimate.py           what it costs, and how long that takes on a chip of chips.py
    metrics.py  console.py           means and their files (tensorboard.py is one); what a person sees
    compilation.py                   the cache of compiled programs
    config.py  errors.py             every knob; the one exception of a user's mistake
"""

__version__ = "0.1.0"
