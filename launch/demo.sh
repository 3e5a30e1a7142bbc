#!/usr/bin/env bash
# From text to a loaded model in a few minutes on two CPU cores, with no download. Called by `make demo`.
# The run is interrupted half-way on purpose: the same command resumes it.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-demo}
rm -rf "$out"
mkdir -p "$out"
began=$SECONDS
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1  # fewer page faults: a sixth of the step (docs/decisions.md)
say() { printf '\n== %s\n' "$*"; }

say "1/6  a vocabulary from the documentation strings of this Python installation"
bert-jax tokenizer --input python-docs --kind wordpiece --vocab_size 4096 --output "$out/tokenizer"

say "2/6  the corpus: sentences, token ids, shards"
bert-jax prepare --input python-docs --tokenizer "$out/tokenizer" --output "$out/corpus" --heldout_fraction 0.05

say "3/6  pretraining BERT-tiny, interrupted half-way"
train=(bert-jax pretrain --config configs/demo.py --workdir "$out/run" --config.data.corpus="$out/corpus")
"${train[@]}" 2> >(tee "$out/log" >&2) &
pid=$!
until grep -q 'step 1,500 held out' "$out/log" 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.5; done
kill -TERM $pid 2>/dev/null || true
wait $pid
say "... and the same command again: it resumes by itself"
"${train[@]}"

say "4/6  evaluation on held-out documents, learning curves"
bert-jax evaluate --workdir "$out/run" | tee "$out/evaluation.json"
bert-jax plot --workdir "$out/run" --output "$out/curves.png"

say "5/6  export"
bert-jax export --workdir "$out/run" --output "$out/model"

say "6/6  load it and fill a mask"
sentence='Return a new [MASK] with the same values.'
echo "$sentence"
bert-jax fill-mask --model "$out/model" "$sentence" | tee "$out/guesses.txt"

say "done in $((SECONDS - began)) s"
python - "$out" <<'PYTHON'
import json, pathlib, sys

out = pathlib.Path(sys.argv[1])
found = json.loads((out / "evaluation.json").read_text().splitlines()[-1])
random = found["nsp_random_share"]
print(f"""held-out masked-token loss  {found['mlm_loss']:.3f} nats; the unigram entropy of the held-out text is {found['unigram_entropy']:.3f}
held-out masked-token hits  {found['mlm_accuracy']:.1%}
held-out next-sentence hits {found['nsp_accuracy']:.1%}; always guessing "{'random' if random > 0.5 else 'next'}" gives {max(random, 1 - random):.1%}

{out}/tokenizer    the vocabulary
{out}/corpus       the prepared text
{out}/run          checkpoints, metrics.jsonl, TensorBoard events
{out}/curves.png   learning curves
{out}/model        for transformers: AutoModelForMaskedLM.from_pretrained("{out}/model")""")
PYTHON
