#!/usr/bin/env bash
# Everything that must hold: lint, types, tests (the slow ones too). Installs the tested versions into the active
# environment first, so that it is one command on a fresh clone.
set -euo pipefail
cd "$(dirname "$0")/.."
python -m pip install --quiet -c constraints.txt -e '.[dev,integrations,submitit,ray,tensorboard,mlflow,wandb]'
ruff check .
ruff format --check .
mypy
export OMP_NUM_THREADS=1  # two test workers share the cores; more threads each would only fight
exec python -m pytest -n 2 --dist worksteal "$@"
