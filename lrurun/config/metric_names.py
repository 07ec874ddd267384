"""What the name of a metric says: its split, whether higher is better, and whether it is the best of several steps."""

from __future__ import annotations

import re
from typing import Literal

Direction = Literal["max", "min"]
Split = Literal["test", "validation", "training"]

_SPLITS: dict[str, Split] = {
    **dict.fromkeys(("test", "testing", "tst"), "test"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval"), "validation"),
    **dict.fromkeys(("train", "training"), "training"),
}
"""A word in the name of a metric -> the split that it is of."""
_HIGHER = frozenset(
    (
        *(
            "acc",
            "accuracy",
            "top1",
            "top5",
            "auc",
            "auroc",
            "auprc",
            "prauc",
            "f1",
            "fbeta",
            "ap",
            "map",
            "miou",
            "iou",
        ),
        *("dice", "jaccard", "precision", "recall", "sensitivity", "specificity", "tpr", "tnr", "kappa", "mcc", "r2"),
        *("pearson", "spearman", "kendall", "correlation", "similarity", "likelihood", "logprob", "elbo"),
        *("bleu", "sacrebleu", "rouge", "meteor", "cider", "chrf", "comet", "bertscore", "exact", "em", "mrr", "ndcg"),
        *("psnr", "ssim", "snr", "sdr", "sisdr", "pesq", "stoi", "mos", "reward", "rew", "return", "success", "win"),
        "elo",
    )
)
"""Words of scores of which higher is better."""
_LOWER = frozenset(
    (
        *("loss", "err", "error", "errors", "mse", "mae", "rmse", "msle", "rmsle", "mape", "smape", "mase", "crps"),
        *("nll", "ppl", "perplexity", "bits", "bpb", "bpc", "bpd", "bpp", "ce", "bce", "crossentropy", "kl", "kld"),
        *("divergence", "brier", "ece", "mce", "wer", "cer", "eer", "fpr", "fnr", "dcf", "mcd"),
        *("fid", "kid", "fad", "fvd", "lpips", "mmd", "emd", "wasserstein", "chamfer", "hausdorff", "hd95", "assd"),
        *("ade", "fde", "epe", "distance", "regret", "cost", "failure", "failures", "misclassification"),
    )
)
"""Words of scores of which lower is better."""
_WEAK_HIGHER = ("score",)
"""Words of which higher is better unless another word says otherwise, as in "brier_score"."""
_NEGATIONS = ("neg", "negative")
"""Words before a score that turn its direction round, as in "neg_mean_squared_error"."""
_TIMES = ("runtime", "second", "seconds", "time", "duration", "speed", "samples", "steps", "step", "epoch", "count")
"""Words of what is no score of a model."""
_SHARES = ("acc", "accuracy", "top1", "top5")
"""Words of scores that are shares of the test items."""
_EXTREMES: dict[str, Direction | None] = {
    **dict.fromkeys(("best",), None),
    **dict.fromkeys(("max", "maximum", "highest"), "max"),
    **dict.fromkeys(("min", "minimum", "lowest"), "min"),
}
"""A word for the best of several values -> the direction in which it is the best; None: in either."""
_NOT_OVER_STEPS = ("ade", "fde", "dcf")
"""Scores with "min" in their established names, which is not over steps: minADE, minFDE, minDCF."""


def words(name: str) -> list[str]:
    """The words of a name in small letters: "valLoss", "val/loss" and "valloss" are all "val", "loss"."""
    found: list[str] = []
    for part in re.split(r"[^A-Za-z0-9]+", name):
        if _of_known(part.lower()) is not None:  # "mIoU"
            found.append(part.lower())
        else:
            for word in re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", part).lower().split():
                found += _divided(word)
    return found


def _divided(word: str) -> list[str]:
    """A word, or the name of a split and the word of a score that are written as one."""
    if _of_known(word) is None:
        for split in sorted(_SPLITS, key=len, reverse=True):
            if word.startswith(split) and _of_word(word.removeprefix(split)) is not None:
                return [split, word.removeprefix(split)]
    return [word]


def _of_known(word: str) -> Direction | None:
    """The direction of a word that is known as it is, or with a number, as "acc1"."""
    for known in (word, re.sub(r"\d+$", "", word)):
        if known in _LOWER:
            return "min"
        if known in _HIGHER:
            return "max"
    return None


def _of_word(word: str) -> Direction | None:
    is_loss = word.endswith(("loss", "error", "perplexity", "crossentropy"))
    return _of_known(word) or ("min" if is_loss else None)


def split_of(metric: str) -> Split | None:
    """The split that the name of a metric names: test, wherever it does, else the last that it names, as "train" in
    "eval/train_acc"; None if it names none."""
    splits = [_SPLITS[word] for word in words(metric) if word in _SPLITS]
    return "test" if "test" in splits else splits[-1] if splits else None


def direction_of(metric: str) -> Direction | None:
    """Whether higher or lower values of a metric are better, by the last word of its name that says so; None if none
    does."""
    found = words(metric)
    for index in range(len(found) - 1, -1, -1):
        pair = "".join(found[max(index - 1, 0) : index + 1])  # "cross", "entropy"
        direction = _of_word(found[index]) or _of_known(pair)
        if direction is not None:
            return _turned(direction) if _is_negated(found[:index]) else direction
    return "max" if any(word in _WEAK_HIGHER for word in found) else None


def _turned(direction: Direction) -> Direction:
    return "min" if direction == "max" else "max"


def _is_negated(before: list[str]) -> bool:
    """Whether words have a negation, which in "false negative" and "true negative" is none."""
    return any(
        word in _NEGATIONS and (k == 0 or before[k - 1] not in ("false", "true")) for k, word in enumerate(before)
    )


def is_about_time(metric: str) -> bool:
    """Whether a metric is a time, a speed or a count, by its name: no score of a model."""
    return any(word in _TIMES for word in words(metric))


def is_share(metric: str) -> bool:
    """Whether a metric is a share of test items, by its name."""
    return any(word in _SHARES for word in words(metric))


def is_best_of_steps(metric: str, direction: Direction) -> bool:
    """Whether a metric is the best of its own values at several steps, by its name, as "best_test_acc" and
    "test/acc.max".

    The best of another one is not meant: "test_acc_at_best_val", "best_val_test_acc" and "test_acc_at_best_epoch" are
    at a step that something else may have chosen. Nor is what is the worst, as the maximum of a loss.
    """
    found = words(metric)
    for k, word in enumerate(found):
        if word not in _EXTREMES or _EXTREMES[word] not in (None, direction):
            continue
        following = found[k + 1] if k + 1 < len(found) else ""
        is_of_validation = _SPLITS.get(following) == "validation" and split_of(metric) == "test"
        is_place = k > 0 and found[k - 1] in ("at", "by", "from", "of")
        if not is_of_validation and not is_place and following not in _NOT_OVER_STEPS:
            return True
    return False
