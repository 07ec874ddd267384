"""What the names of metrics say."""

from __future__ import annotations

from typing import Any

import pytest

from lrurun.config import metric_names

HIGHER = (
    "test_acc test/accuracy acc acc1 test/f1 f1_score score bleu bleu4 rougeL episode_return rollout/ep_rew_mean mAP "
    "map50 mIoU dice R2 precision recall psnr ssim reward exact_match em auc AUROC top1 top_1 valacc log_likelihood "
    "neg_mean_squared_error neg_log_loss test_accuracy_score win_rate success_rate pearson"
)
LOWER = (
    "test_loss testLoss testloss NLLLoss eval/perplexity test.rmse rmsle test_mae smape mape nll bits_per_byte bpc ppl "
    "val_cross_entropy test_err word_error_rate test_ece brier brier_score test/eer wer test_cer FID fvd lpips mse mcd "
    "regret distance negative_log_likelihood minADE hd95"
)
UNKNOWN = "test_foo value latest entropy false_negative_rate ep_len_mean per_class norm x"


@pytest.mark.parametrize(
    ("names", "direction"), [(HIGHER.split(), "max"), (LOWER.split(), "min"), (UNKNOWN.split(), None)]
)
def test_the_direction_of_a_metric_by_its_name(names: list[str], direction: str | None) -> None:
    assert {name: metric_names.direction_of(name) for name in names} == dict.fromkeys(names, direction)


@pytest.mark.parametrize(
    ("metric", "split"),
    [
        *(("test_acc", "test"), ("acc/test", "test"), ("testAcc", "test"), ("testacc", "test"), ("testing", "test")),
        *(("eval/test_acc", "test"), ("test_acc_at_best_val", "test"), ("val_acc", "validation")),
        *(
            ("valid/loss", "validation"),
            ("eval_loss", "validation"),
            ("dev f1", "validation"),
            ("valloss", "validation"),
        ),
        *(("train/val_loss", "validation"), ("train/loss", "training"), ("eval/train_acc", "training")),
        *(("accuracy", None), ("latest", None), ("contest_acc", None), ("value", None), ("evaluation", None)),
    ],
)
def test_the_split_of_a_metric_by_its_name(metric: str, split: str | None) -> None:
    assert metric_names.split_of(metric) == split


@pytest.mark.parametrize(
    ("metric", "direction", "is_best"),
    [
        *((name, "max", True) for name in ("best_test_acc", "test/acc.max", "max_test_acc", "bestTestAcc", "acc_best")),
        *((name, "min", True) for name in ("best_test_loss", "test_loss.min", "lowest_test_err", "best_val_loss")),
        *((name, "max", False) for name in ("test_acc_at_best_val", "best_val_test_acc", "test_acc_at_best_epoch")),
        *((name, "min", False) for name in ("test_max_error", "max_test_loss", "minADE", "test_min_fde")),
        ("softmax_acc", "max", False),
        ("minimal_acc", "max", False),
    ],
)
def test_the_best_of_several_steps_by_its_name(metric: str, direction: Any, is_best: bool) -> None:
    assert metric_names.is_best_of_steps(metric, direction) == is_best
