#!/usr/bin/env bash
# Run every benchmark, one after the other; `make bench` calls it. Run it on a quiet machine.
#
#   BOOKS   an archive of texts, such as the 82 books that docs/results.md is about
#           default: python-docs (some MB of documentation strings), and where files are needed the books of tests/samples
#   PAIRS   a file like GLUE's QNLI/dev.tsv.gz; default: the 1,200 examples of tests/samples
#   SENTENCES  an archive of sentences of Tatoeba; default: the Chinese sentences of tests/samples
#   WORK    a directory for the outputs of the benchmarks; default: .cache/bench
set -euo pipefail
cd "$(dirname "$0")/.."
text=${BOOKS:-python-docs}
books=${BOOKS:-tests/samples/books/classic-books-md.tar.xz}
pairs=${PAIRS:-tests/samples/glue/QNLI/dev.tsv.gz}
work=${WORK:-.cache/bench}/$(basename "$text")
echo "text: $text; files of text: $books; pairs: $pairs; in $work"
[ -n "${BOOKS:-}" ] || echo "the figures of docs/results.md need more text than this: BOOKS=ARCHIVE PAIRS=FILE make bench"
mkdir -p "$work"
[ -d "$work/tokenizer" ] || bert-jax tokenizer --input "$text" --vocab_size 16384 --output "$work/tokenizer"
[ -d "$work/corpus" ] || bert-jax prepare --input "$text" --tokenizer "$work/tokenizer" --output "$work/corpus" --heldout_fraction 0.06
[ -d "$work/texts" ] || { mkdir "$work/texts" && tar -C "$work/texts" -xf "$books"; }
run() { printf '\n$ python %s\n' "$*"; python "$@"; }
run benchmarks/batch_speed.py --corpus "$work/corpus"
run benchmarks/masking_speed.py
run benchmarks/text_to_sequences.py --input "$work/texts" --vocab "$work/tokenizer"
run benchmarks/prepare_memory.py --input "$text" --vocab "$work/tokenizer"
run benchmarks/planted_duplicates.py --input "$books" --tokenizer "$work/tokenizer"
run benchmarks/cleaning_speed.py --input "$books" --vocab "$work/tokenizer"
run benchmarks/language_accuracy.py --sentences "${SENTENCES:-tests/samples/tatoeba/tatoeba-v1.tar.gz}"
run benchmarks/prepare_speed.py --input "$text" --vocab "$work/tokenizer" --repeats 5
run benchmarks/step_speed.py
run benchmarks/block_speed.py
run benchmarks/long_sequences.py
run benchmarks/input_wait.py --corpus "$work/corpus"
run benchmarks/start_time.py --corpus "$work/corpus"
run benchmarks/finetune_speed.py --data "$pairs" --vocab "$work/tokenizer" --output "$work/finetune_speed.jsonl"
run benchmarks/hostile_inputs.py
run benchmarks/score_speed.py --tokenizer "$work/tokenizer"
