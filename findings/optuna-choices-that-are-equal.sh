#!/usr/bin/env bash
# One would guess: a categorical parameter is stored as the choice that the objective was given.
# What happens: what is stored is the index of the first choice that is equal in Python, and True == 1, False == 0.0: with the choices
#   [1, True, 0.0, False] a trial that ran with True is a trial with 1, in `study.trials`, in `best_params` and in the storage.
# Seen in: optuna 5.0.0.
# Whom it hurts: who lets a setting be False or a number, as in dropout [False, 0.0, 0.1]: results of two settings are mixed up, and no
#   analysis of the study can part them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet optuna==5.0.0
"$folder/venv/bin/python" - <<'PY'
import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
given = []


def objective(trial):
    given.append(trial.suggest_categorical("dropout", [1, True, 0.0, False]))
    return 0.0


study.optimize(objective, n_trials=8)
stored = [trial.params["dropout"] for trial in study.trials]
print(f"optuna {optuna.__version__}: given  {given}\n              stored {stored}")
if any(isinstance(choice, bool) for choice in stored) or not any(isinstance(choice, bool) for choice in given):
    raise SystemExit("changed")
PY
echo "Of choices that are equal in Python, Optuna stores the first."
