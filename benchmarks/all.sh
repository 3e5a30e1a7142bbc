#!/usr/bin/env bash
# Every benchmark, one after the other, on the books and the pairs of ../shared/data; called by `make bench`. Run it on a quiet machine.
set -euo pipefail
cd "$(dirname "$0")/.."
books=${1:-../shared/data/books/classic-books-md.tar.xz}
work=${2:-.cache/bench}
mkdir -p "$work"
[ -d "$work/tokenizer" ] || bert-jax tokenizer --input "$books" --vocab_size 16384 --output "$work/tokenizer"
[ -d "$work/corpus" ] || bert-jax prepare --input "$books" --tokenizer "$work/tokenizer" --output "$work/corpus" --heldout_fraction 0.06
run() { printf '\n$ python %s\n' "$*"; python "$@"; }
run benchmarks/batch_speed.py --corpus "$work/corpus"
run benchmarks/masking_speed.py
[ -d "$work/texts" ] || { mkdir "$work/texts" && tar -C "$work/texts" -xf "$books"; }
run benchmarks/text_to_sequences.py --input "$work/texts/Jane Austen" --vocab "$work/tokenizer"
run benchmarks/prepare_memory.py --input "$books" --vocab "$work/tokenizer"
run benchmarks/prepare_speed.py --input "$books" --vocab "$work/tokenizer" --repeats 5
run benchmarks/step_speed.py
run benchmarks/input_wait.py --corpus "$work/corpus"
run benchmarks/start_time.py --corpus "$work/corpus"
run benchmarks/finetune_speed.py --data ../shared/data/glue/QNLI/dev.tsv.gz --vocab ../shared/data/vocab/bert-base-uncased
