"""`python -m bert_jax VERB`: the command line."""

from bert_jax.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
