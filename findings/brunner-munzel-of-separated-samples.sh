#!/usr/bin/env bash
# One would guess: where every score of one sample is above every score of the other, the p value of the Brunner-Munzel test is as
#   small as it can be.
# What happens: scipy.stats.brunnermunzel gives NaN by default, with a warning about degrees of freedom: both variances
#   of the placements are 0. distribution="normal" gives exactly 0, whatever the sizes: with 2 values a side too. A difference of one pair
#   (one overlap) gives a finite p. The permutation distribution (permutation_test with this statistic) has an answer.
# Seen in: SciPy 1.17.1 and 1.18.1.
# Whom it hurts: who compares models by ranks: the clearest difference is "not significant" in a table that treats
#   NaN as no result, or p = 0 from four runs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.4.6 scipy==1.17.1
"$folder/venv/bin/python" -W ignore - <<'PY'
import math

import scipy
from scipy.stats import brunnermunzel

print(f"scipy {scipy.__version__}")
low, high = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.7, 0.8, 0.9, 1.0, 1.1, 1.2]
by_default = brunnermunzel(low, high).pvalue
by_normal = brunnermunzel(low, high, distribution="normal").pvalue
of_four = brunnermunzel(low[:2], high[:2], distribution="normal").pvalue
overlapping = brunnermunzel([*low[:5], 0.75], high).pvalue
print(f"separated: p = {by_default}; by the normal distribution: p = {by_normal}")
print(f"two values a side, by the normal distribution: p = {of_four}")
print(f"one overlapping pair: p = {overlapping:.2g}")
if not (math.isnan(by_default) and by_normal == 0 and of_four == 0 and 0 < overlapping < 0.05):
    raise SystemExit("changed")
print("The test has no p value where the difference is largest.")
PY
