lrurun new import example

lrurun -q import example/table/runs.csv --metric test_acc --by norm --name norms

lrurun -q import example/table/runs.csv --metric val_acc --by norm --name wrong

lrurun status

lrurun ledger hide wrong

lrurun status --hidden

lrurun ledger forget wrong --why 'the score is of the validation split' --yes

lrurun ledger forgotten

lrurun ledger backup --out paper.db --instance norms

lrurun --ledger paper.db status
