#!/usr/bin/env bash
# One would guess: a msgspec.Struct whose name begins with "Test", such as TestSet, may be imported into a test file; pytest
#   skips it with the warning that it gives for a dataclass or any class with an __init__ of its own.
# What happens: pytest calls a class a group of tests unless its __init__ or __new__ is not that of object. A Struct is made in C and shows
#   pytest neither, so that pytest makes an instance without arguments. Collection of the whole file stops with
#   "TypeError: Missing required argument 'count'", which names neither pytest's rule nor the import. A Struct whose
#   fields have defaults is collected without a word.
# Seen in: pytest 9.0.2 with msgspec 0.20.0.
# Whom it hurts: who describes test sets, test splits or test results with msgspec: one import in one test file ends all of
#   its tests. `import module` instead of the class, or __test__ = False, helps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pytest==9.0.2 msgspec==0.20.0
cd "$folder"
cat > sets.py <<'PY'
from dataclasses import dataclass

import msgspec


class TestSet(msgspec.Struct):
    count: int


@dataclass
class TestData:
    count: int
PY
printf 'from sets import TestSet\n\ndef test_count():\n    assert TestSet(3).count == 3\n' > test_struct.py
printf 'from sets import TestData\n\ndef test_count():\n    assert TestData(3).count == 3\n' > test_dataclass.py
"$folder/venv/bin/python" -c 'import msgspec, pytest; print("pytest", pytest.__version__, "msgspec", msgspec.__version__)'
struct=$("$folder/venv/bin/python" -m pytest -q -p no:cacheprovider test_struct.py 2>&1 || true)
dataclass=$("$folder/venv/bin/python" -m pytest -q -p no:cacheprovider test_dataclass.py 2>&1 || true)
grep -m 1 -E "^E " <<< "$struct" || true
tail -n 1 <<< "$struct"
tail -n 1 <<< "$dataclass"
grep -q "Missing required argument 'count'" <<< "$struct" || { echo changed; exit 1; }
grep -q "1 passed, 1 warning" <<< "$dataclass" || { echo changed; exit 1; }
echo "An imported Struct with the name of a test class stops the collection of the file; a dataclass does not."
