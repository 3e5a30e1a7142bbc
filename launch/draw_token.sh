# shellcheck shell=bash
# Sourced by the launchers before they start any process: BERT_JAX_TOKEN, the secret of a run's processes. A secret that the
# user has set is kept. It is never an argument of a command, since every user of a machine can list those.
export BERT_JAX_TOKEN=${BERT_JAX_TOKEN:-$(od -An -vtx1 -N32 /dev/urandom | tr -d ' \n')}
