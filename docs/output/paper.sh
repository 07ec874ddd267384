lrurun new import example

lrurun -q import example/table/runs.csv --metric test_acc --by norm --name norms --test-items 10000

lrurun report --instance norms --plain --caption "Which norm matters." --label tab:norm --out table.tex

cat table.tex

lrurun report --instance norms --methods --out methods.tex

cat methods.tex

lrurun ledger export --to publication record --instance norms --license CC-BY-4.0 --anonymous

ls record
