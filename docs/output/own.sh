lrurun new recurrence averages

lrurun new task echo

sed -i -e 's/Is the number of ones in 32 bits odd?/Which bit came 8 steps before the last one?/' -e 's/parity of 32 bits/a bit of 8 steps ago/' -e 's/(bits.sum(1) % 2)/bits[:, -9]/' echo.py

sed -i -e 's/^seeds = 1/seeds = 3/' -e 's/^expect = .*/expect = "not known yet"/' -e 's/^width = 16/width = 16\npooling = "last"/' -e 's/^state = 16/state = 32/' -e 's/^steps = 60/steps = 600/' -e 's/^eval_every = 30/eval_every = 100/' echo.toml

cat >> averages.toml <<END

[[claim]]
text = "Complex modes keep a bit that running averages forget"
source = "ours"
rung = "diagonal"
than = "averages"
END

lrurun check recurrence averages --load averages.py

lrurun check recipe echo.toml --load echo.py --ladder averages.toml

lrurun data prepare echo.toml --load echo.py

lrurun plan echo.toml --load echo.py --ladder averages.toml

lrurun ladder echo.toml --load echo.py --ladder averages.toml --jobs 1

lrurun report echo.toml --load echo.py --ladder averages.toml --format html --out report.html
