#!/usr/bin/env bash
# One would guess: two classifiers that are right on exactly the same test items do not differ: McNemar's test gives p = 1.
# What happens: statsmodels.stats.contingency_tables.mcnemar with exact=False (the chi-squared form, for
#   large samples) and the default continuity correction gives statistic = inf and p = 0. The correction turns the difference
#   of 0 into 1 before it is squared, and the number of items on which the two differ, 0, is the denominator. The exact
#   test gives p = 1; without the correction, p is NaN. One item on which they differ gives p = 1 again.
# Seen in: statsmodels 0.14.5.
# Whom it hurts: who compares many checkpoints or seeds on shared test items in a loop: a pair that is equal in every answer
#   has the most significant difference of the table, and survives every correction for the number of comparisons.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.4.6 scipy==1.17.1 pandas==2.3.3 statsmodels==0.14.5
"$folder/venv/bin/python" -W ignore - <<'PY'
import math

import statsmodels
from statsmodels.stats.contingency_tables import mcnemar

print(f"statsmodels {statsmodels.__version__}")
equal, one = [[50, 0], [0, 50]], [[50, 1], [0, 49]]
exact = mcnemar(equal, exact=True).pvalue
corrected = mcnemar(equal, exact=False)
plain = mcnemar(equal, exact=False, correction=False).pvalue
differing = mcnemar(one, exact=False).pvalue
print(f"equal on all of 100 items: exact p = {exact}; with exact=False: statistic {corrected.statistic}, p = {corrected.pvalue}")
print(f"without the correction: p = {plain}; one item differs, with the correction: p = {differing}")
if not (exact == 1 and corrected.pvalue == 0 and math.isinf(corrected.statistic) and math.isnan(plain) and differing == 1):
    raise SystemExit("changed")
print("Two models without any difference differ with p = 0.")
PY
