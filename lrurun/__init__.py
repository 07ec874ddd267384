"""Named ablation ladders between a tanh RNN and the Linear Recurrent Unit."""

__version__ = "0.1.0"
