#!/usr/bin/env bash
# One would guess: GroupShuffleSplit(test_size=0.1) puts about a tenth of the examples into the test set, and keeps groups whole.
# What happens: the share is one of the groups. Where groups differ in size, the test set may have any size: of 1,000 examples in 101 groups,
#   one of them of 900, a tenth of the groups is 11 examples in most draws, and 910 where the large one is drawn.
#   StratifiedGroupKFold(n_splits=10), which balances classes over whole groups, cannot split the large one either, and gives one fold
#   of at least 900; neither warns.
# Seen in: scikit-learn 1.8.0.
# Whom it hurts: who splits recordings by speaker or pages by document: a test set of 11 items instead of 100 has an error
#   of 14 points near an accuracy of 70 %.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.4.6 scipy==1.17.1 scikit-learn==1.8.0
"$folder/venv/bin/python" - <<'PY'
import warnings

import numpy as np
import sklearn
from sklearn.model_selection import GroupShuffleSplit, StratifiedGroupKFold

print(f"scikit-learn {sklearn.__version__}")
groups = np.concatenate([np.zeros(900, int), np.arange(1, 101)])
labels = np.arange(1000) % 2
with warnings.catch_warnings():
    warnings.simplefilter("error")
    sizes = [len(test) for _, test in GroupShuffleSplit(50, test_size=0.1, random_state=0).split(labels, labels, groups)]
    folds = [len(test) for _, test in StratifiedGroupKFold(10).split(labels, labels, groups)]
print(f"test_size=0.1 of 1,000 examples, 50 draws: sizes {sorted(set(sizes))}, {sizes.count(11)} times 11")
print(f"folds of StratifiedGroupKFold(10): {sorted(folds)}")
if not (set(sizes) == {11, 910} and sizes.count(11) > 25 and max(folds) >= 900):
    raise SystemExit("changed")
print("The share of a split by groups is one of the groups, not of the examples.")
PY
