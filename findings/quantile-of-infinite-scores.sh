#!/usr/bin/env bash
# One would guess: a quantile that falls on a finite score is that score, and np.quantile(x, 0.5) equals np.median(x).
# What happens: one infinite value makes NumPy's quantiles NaN wherever the interpolation touches it, with a weight of 0
#   too: of [1, 2, inf] np.median gives 2 and np.quantile(..., 0.5) NaN; of scores with two infinities the quantile 1 is NaN and
#   not the maximum. pandas has both answers, Series.median 2 and Series.quantile NaN. Polars gives 2 for both.
# Seen in: NumPy 2.4.6 and 2.5.5, pandas 3.1.1, Polars 2.1.0.
# Whom it hurts: who takes quartiles of perplexities or losses, one of which has overflowed: the quartiles vanish, while
#   the median beside them looks right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.4.6 pandas==3.1.1 polars==2.1.0
"$folder/venv/bin/python" -W ignore - <<'PY'
import math

import numpy as np
import pandas as pd
import polars as pl

print(f"numpy {np.__version__}, pandas {pd.__version__}, polars {pl.__version__}")
scores = [1.0, 2.0, math.inf]
print("scores", scores)
seen = {
    "np.median": np.median(scores),
    "np.quantile 0.5": np.quantile(scores, 0.5),
    "np.quantile 0.5, method nearest": np.quantile(scores, 0.5, method="nearest"),
    "pandas median": pd.Series(scores).median(),
    "pandas quantile 0.5": pd.Series(scores).quantile(0.5),
    "polars median": pl.Series(scores).median(),
    "polars quantile 0.5": pl.Series(scores).quantile(0.5, "linear"),
    "np.quantile 1 of [1, inf, inf]": np.quantile([1.0, math.inf, math.inf], 1.0),
}
for name, value in seen.items():
    print(f"{name}: {value}")
nan = [name for name, value in seen.items() if math.isnan(value)]
expected = ["np.quantile 0.5", "pandas quantile 0.5", "np.quantile 1 of [1, inf, inf]"]
if nan != expected:
    raise SystemExit(f"changed: NaN is now {nan}")
print("The quantile is NaN although the median of the same scores is 2.")
PY
