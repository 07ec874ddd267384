#!/usr/bin/env bash
# One would guess: standard errors that are clustered by runs and by test items are numbers, and three well-known packages give
#   the same ones, or say that there is none.
# What happens: the sum of the variances by runs and by items less the one of single cells may be negative. statsmodels, linearmodels and
#   pyfixest all return it as it is, three different numbers (each has its own correction for few clusters), take the root and
#   report NaN as standard error and p value, with no more than NumPy's warning. None replaces or reports a negative variance.
# Seen in: statsmodels 0.14.5, linearmodels 7.0, pyfixest 0.60.0, on four runs and four items whose answers alternate.
# Whom it hurts: who compares models over seeds and test items: the pairs whose runs are right on different items have no p
#   value, and a table that drops NaN drops them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.4.6 scipy==1.17.1 pandas==2.3.3 statsmodels==0.14.5 linearmodels==7.0 pyfixest==0.60.0
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
import pandas as pd
import pyfixest
import statsmodels.api as sm
from linearmodels.panel import PooledOLS

print(", ".join(f"{name} {version(name)}" for name in ("statsmodels", "linearmodels", "pyfixest")))
runs, items = (part.ravel() for part in np.meshgrid(np.arange(4), np.arange(4), indexing="ij"))
right = np.where((runs + items) % 2, 1.0, 0.0)
right[0] = 1.0
table = pd.DataFrame({"right": right, "one": 1.0, "run": runs, "item": items})
groups = np.column_stack([runs, items])
first = sm.OLS(right, np.ones((16, 1))).fit(cov_type="cluster", cov_kwds={"groups": groups})
panel = table.set_index(["run", "item"])
second = PooledOLS(panel.right, panel[["one"]]).fit(cov_type="clustered", cluster_entity=True, cluster_time=True)
third = pyfixest.feols("right ~ 1", table, vcov={"CRV1": "run+item"})
variances = [float(np.ravel(some)[0]) for some in (first.cov_params(), second.cov, third._vcov)]
p_values = [float(np.ravel(some)[0]) for some in (first.pvalues, second.pvalues, third.pvalue())]
print("variance of the mean:", *(f"{value:.5f}" for value in variances))
print("p values:", *p_values)
if not (max(variances) < 0 and len({round(value, 6) for value in variances}) == 3 and np.isnan(p_values).all()):
    raise SystemExit("changed")
print("Clustered by runs and items, the variance is negative, and p is NaN.")
PY
