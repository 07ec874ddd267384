cat > rates.toml <<END
extends = "npDigits.toml"

[about]
source = "ours"
expect = "a search over three settings"
device = "one core"
hours = 0.1
checked = "never"

[tune]
search = "random"
trials = 6

[tune.space]
"optim.lr" = { low = 1e-3, high = 0.1, log = true }
"optim.recurrent_factor" = { low = 0.25, high = 1.0 }
"optim.weight_decay" = [0.0, 0.05]
END

lrurun check recipe rates.toml --ladder lru

lrurun plan rates.toml --profile smoke --rung gamma-norm --tune

lrurun -q ladder rates.toml --profile smoke --rung gamma-norm --tune --seeds 3 --jobs 1

lrurun query 'select trial, optim_lr, optim_recurrent_factor as factor, optim_weight_decay as decay, round(val_accuracy, 3) as score from trials order by score desc'

lrurun runs --where 'stage=train' --by rung,optim.lr,optim.recurrent_factor

lrurun report rates.toml --profile smoke --tune --rung gamma-norm --format latex --out table.tex

lrurun plot rates.toml --profile smoke --tune --kind curves --out curves.pdf
