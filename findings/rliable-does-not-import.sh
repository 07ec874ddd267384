#!/usr/bin/env bash
# One would guess: `pip install rliable`, which reports no conflict, gives a package that can be imported.
# What happens: rliable 1.2.0 needs arch, of which 7.2.0 is installed beside pandas 3, since it sets no upper limit; arch
#   calls a decorator of pandas whose signature has changed, and `import rliable.library` ends with a TypeError. With pandas
#   below 3 it works.
# Seen in: rliable 1.2.0, arch 7.2.0, pandas 3.1.1.
# Whom it hurts: who computes interquartile means and bootstrap intervals of runs by the usual package in a fresh environment.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet rliable==1.2.0 arch==7.2.0 pandas==3.1.1 numpy==2.4.6 scipy==1.17.1
"$folder/venv/bin/pip" check
if seen=$("$folder/venv/bin/python" -W ignore -c 'import rliable.library' 2>&1); then
  echo "changed: it can be imported"
  exit 1
fi
echo "rliable 1.2.0, arch 7.2.0, pandas 3.1.1: pip sees no conflict, and the import ends with"
echo "$seen" | tail -n 1
case "$seen" in *"deprecate_kwarg() missing"*) ;; *) echo "changed: another error"; exit 1 ;; esac
"$folder/venv/bin/pip" install --quiet 'pandas==2.3.3'
"$folder/venv/bin/python" -W ignore -c 'import rliable.library; print("with pandas 2.3.3 it is imported")'
