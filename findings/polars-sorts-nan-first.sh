#!/usr/bin/env bash
# One would guess: a table sorted by score, best first, begins with the best score, as max() says.
# What happens: in Polars NaN is larger than every number when it sorts and ranks, and is ignored by max(): descending order and
#   top_k begin with the run whose score is NaN, which is not the maximum; nulls_last does not move it, as NaN is no null. pandas
#   puts NaN last in either direction.
# Seen in: Polars 2.1.0, pandas 3.1.1.
# Whom it hurts: who takes the first row of a leaderboard, or ranks seeds: a diverged run wins.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pandas==3.1.1 polars==2.1.0
"$folder/venv/bin/python" - <<'PY'
import math

import pandas as pd
import polars as pl

print(f"polars {pl.__version__}, pandas {pd.__version__}")
scores = [0.8, math.nan, 0.9]
column = pl.Series("accuracy", scores)
first = column.sort(descending=True, nulls_last=True)[0]
top = column.top_k(1)[0]
ranks = column.rank().to_list()
in_pandas = pd.Series(scores).sort_values(ascending=False).iloc[0]
print(f"scores {scores}")
print(f"polars: max {column.max()}, first in descending order {first}, top_k(1) {top}, ranks {ranks}")
print(f"pandas: first in descending order {in_pandas}")
if not (column.max() == 0.9 and math.isnan(first) and math.isnan(top) and ranks == [1.0, 3.0, 2.0] and in_pandas == 0.9):
    raise SystemExit("changed")
print("The best row by sorting is the one without a score.")
PY
