#!/usr/bin/env bash
# Start the training with the project's hyperparameters.
#
# From the environment (defaults lie beside this script):
#   VENV        virtual environment to run in
#   CACHE_DIR   torch.compile's cache; TORCHINDUCTOR_CACHE_DIR goes first where it is set
#   LOG_FILE    what is printed is also appended here
#   STEPS       steps of each drafter
# Anything on the command line goes to train_dflash_pipeline.py after the values below and so wins,
# for instance:   ./start_training.sh --target-devices cuda:0 --drafter-devices cuda:1,cuda:2
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

VENV=${VENV:-$here/venv}
CACHE_DIR=${CACHE_DIR:-$here/compile_cache}
LOG_FILE=${LOG_FILE:-$here/training.log}
STEPS=${STEPS:-200}
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$CACHE_DIR}

hyperparameters=(
    --steps "$STEPS"
    --token-budget 1024       # of a batch: 2 texts of 192 tokens with 16 blocks of 16 are 896
    --max-batch 2
    --context 192
    --anchors 16              # of a text with a long answer; a short one has half as many
    --block-size 16
    --gamma 7.0               # 7 suits blocks of 16; shorter blocks want less
    --learning-rate 2e-3
    --meet-every 10
    --queue-length 4
    --log-interval 10
    --seed 0
)
devices=(--target-devices cpu --drafter-devices cpu,cpu)

mkdir -p -- "$(dirname -- "$LOG_FILE")"
exec "$VENV/bin/python" -u "$here/train_dflash_pipeline.py" \
    "${hyperparameters[@]}" "${devices[@]}" "$@" > >(tee -a -- "$LOG_FILE") 2>&1
