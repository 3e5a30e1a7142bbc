#!/usr/bin/env bash
# From text to a loaded model in a few minutes on two CPU cores. `make demo` calls it.
# The run is interrupted on purpose: the same command resumes it.
#
#   launch/demo.sh [DIR]     DIR (default: demo) must be empty, absent, or hold an earlier demo, which is replaced
set -euo pipefail
trap 'exit 130' INT  # without it, bash goes on after a Ctrl-C that the running command handled
case ${1-} in  # an absolute path, since the demo runs in the checkout
    '') out=$(cd "$(dirname "$0")/.." && pwd)/demo ;;
    /*) out=$1 ;;
    *) out=$PWD/$1 ;;
esac
cd "$(dirname "$0")/.."
marker=$out/.bert-jax-demo
if [[ -e $out && ! -e $marker && (! -d $out || -n $(ls -A "$out")) ]]; then
    echo "demo.sh: $out is not empty and not an earlier demo; choose another directory: launch/demo.sh DIR" >&2
    exit 2
fi
rm -rf "$out"
mkdir -p "$out"
touch "$marker"
began=$SECONDS
say() { printf '\n== %s\n' "$*"; }

say "1/7  train a tokenizer on the documentation strings of Python's standard library"
bert-jax tokenizer --input python-docs --kind wordpiece --vocab_size 4096 --output "$out/tokenizer"

say "2/7  prepare the corpus: sentences, token ids, shards"
bert-jax prepare --input python-docs --tokenizer "$out/tokenizer" --output "$out/corpus" --heldout_fraction 0.05

say "3/7  pretrain a small modern encoder, interrupted on purpose"
train=(bert-jax pretrain --config configs/demo.py --workdir "$out/run" --config.data.corpus="$out/corpus")
"${train[@]}" 2> >(tee "$out/log" >&2) &
pid=$!
trap 'kill -TERM $pid 2>/dev/null' EXIT  # bash starts a command in the background without Ctrl-C
until grep -q 'step 300 held out' "$out/log" 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.5; done
kill -TERM $pid 2>/dev/null || true
wait $pid
trap - EXIT
say "... the same command again resumes the run"
"${train[@]}"

say "4/7  evaluate on held-out documents, plot learning curves"
bert-jax evaluate --workdir "$out/run" --json | tee "$out/evaluation.json"
bert-jax plot --workdir "$out/run" --output "$out/curves.png"

say "5/7  export"
bert-jax export --workdir "$out/run" --output "$out/model"

say "6/7  load the model and fill masks"
printf '%s\n' 'Return a new [MASK] with the same values.' 'If the file does not [MASK], an error is raised.' \
    'The default [MASK] is None.' | tee "$out/sentences.txt"
bert-jax fill-mask --model "$out/model" --input "$out/sentences.txt" | tee "$out/guesses.txt"

say "7/7  write the report"
bert-jax report "$out/run" --output "$out/report.html"

say "done in $((SECONDS - began)) s"
program=$(command -v bert-jax)
python - "$out" "${program#"$PWD"/}" <<'PYTHON'
import json, pathlib, sys

out, program = pathlib.Path(sys.argv[1]), sys.argv[2]
found = json.loads((out / "evaluation.json").read_text().splitlines()[-1])
print(f"""held-out masked-token loss       {found['mlm_loss']:.3f} nats; unigram loss of the held-out text {found['unigram_loss']:.3f}
held-out masked-token accuracy   {found['mlm_accuracy']:.1%}

{out}/tokenizer    the vocabulary
{out}/corpus       the prepared text
{out}/run          checkpoints, metrics.jsonl, TensorBoard events
{out}/curves.png   learning curves
{out}/model        for transformers: AutoModelForMaskedLM.from_pretrained("{out}/model")
{out}/report.html  the whole run on one page: open {(out / 'report.html').resolve().as_uri()}

Three things to try next:
  {program} fill-mask --model {out}/model 'Raise an [MASK] if the file is missing.'
  {program} attention --model {out}/model --output {out}/heads.html 'Return a new list.'
  {program} pretrain --budget 30m --workdir runs/own --config.data.text='your-texts/*.txt'""")
PYTHON
