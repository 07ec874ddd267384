lrurun new import example

lrurun -q import example/table/runs.csv --metric test_acc --by norm --name norms

lrurun -q import example/table/runs.csv --metric val_acc --by norm --name wrong

lrurun status

lrurun ledger hide wrong

lrurun status

lrurun ledger forget wrong --dry-run

lrurun ledger forget wrong --yes --why 'the score is of the validation split'

lrurun ledger forgotten

lrurun --ledger paper.db ledger merge ledger.db --instance norms

lrurun --ledger paper.db status
