"""`python -m bert_jax VERB`: the command line."""

from bert_jax.cli.main import main

raise SystemExit(main())
