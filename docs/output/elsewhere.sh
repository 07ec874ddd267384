lrurun new import example

lrurun import example/table/runs.csv --metric test_acc --by norm

cat runs.toml

lrurun import example/mlflow/mlruns --name mlflow --metric test_acc --by norm

lrurun import example/tensorboard --name tensorboard --metric test_acc --by norm --at best --metric-for-choice val_acc

python - <<END
import lrurun
import pandas as pd

frame = pd.read_csv("example/table/runs.csv")
norms = lrurun.import_runs(frame, name="frame", metric="test_acc", by="norm")
print(norms.report().rows.to_pandas()[["rung", "n", "mean", "verdict", "comparison.p_adjusted"]])
END

lrurun show c267d4a24d00
