#!/usr/bin/env bash
# One would guess: a field that is declared with `= {}` has the default {} when the fields of a struct are inspected.
# What happens: msgspec copies an empty dictionary or list for each instance, so the field has a default_factory, and
#   FieldInfo.default is NODEFAULT, as for a required field; FieldInfo.required is False. A tuple stays a default.
# Seen in: msgspec 0.21.1 and 0.22.0.
# Whom it hurts: who leaves out what equals its default, to keep digests of configurations: a new field with `= {}` is then in
#   all of them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet msgspec==0.21.1
"$folder/venv/bin/python" - <<'PY'
import msgspec


class Recipe(msgspec.Struct):
    steps: int
    read: dict[str, str] = {}
    files: tuple[str, ...] = ()


print(f"msgspec {msgspec.__version__}")
fields = {field.name: field for field in msgspec.structs.fields(Recipe)}
seen = {name: (field.required, field.default is msgspec.NODEFAULT) for name, field in fields.items()}
for name, (required, without) in seen.items():
    print(f"{name}: required {required}, default is NODEFAULT {without}")
if seen != {"steps": (True, True), "read": (False, True), "files": (False, False)}:
    raise SystemExit("changed")
print("The default of an empty dictionary is not among the defaults.")
PY
