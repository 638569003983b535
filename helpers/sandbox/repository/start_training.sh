#!/usr/bin/env bash
# Start the training with the project's hyperparameters.
#
# From the environment, with defaults beside this script's folder:
#   VENV        virtual environment to run in                            ../venv
#   CACHE_DIR   torch.compile's cache, where TORCHINDUCTOR_CACHE_DIR     ../cache/torchinductor
#               does not say it
#   LOG_FILE    what is printed is also appended here                    ../logs/training.log
#   STEPS       steps of each drafter                                    200
# Anything on the command line goes to train_dflash_pipeline.py after the values below and so wins,
# for instance:   ./start_training.sh --target-devices cuda:0 --drafter-devices cuda:1,cuda:2
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

VENV=${VENV:-$here/../venv}
CACHE_DIR=${CACHE_DIR:-$here/../cache/torchinductor}
LOG_FILE=${LOG_FILE:-$here/../logs/training.log}
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
# Python takes this process's place, so that signals and the exit code are its own; tee outlives a
# signal to the whole group, so that the last lines are not lost.
exec "$VENV/bin/python" -u "$here/train_dflash_pipeline.py" \
    "${hyperparameters[@]}" "${devices[@]}" "$@" \
    > >(trap '' INT TERM; exec tee -a -- "$LOG_FILE") 2>&1
