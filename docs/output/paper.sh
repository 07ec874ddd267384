lrurun new import example

lrurun -q import example/table/runs.csv --metric test_acc --by norm --name norms --test-items 10000

lrurun report --instance norms --format latex --out table.tex

cat table.tex

lrurun report --instance norms --methods

lrurun ledger export --to publication record --instance norms

ls record
