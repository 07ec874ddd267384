"""The place in 0.1.0 of what is now in `lrurun.nn.recurrences`: plug-ins of that time import it from here."""

from lrurun.nn.recurrences import Params, Recurrence, build
from lrurun.nn.recurrences.dense import Dense
from lrurun.nn.recurrences.diagonal import Diagonal, decay_and_phase, eigenvalues
from lrurun.nn.recurrences.dlr import DLR, DSS
from lrurun.nn.recurrences.rotrnn import RotRNN
from lrurun.nn.recurrences.s4 import S4
from lrurun.nn.recurrences.s4d import S4D
from lrurun.nn.recurrences.s5 import S5

__all__ = ["DLR", "DSS", "S4", "S4D", "S5", "Dense", "Diagonal", "Params", "Recurrence", "RotRNN"]
__all__ += ["build", "decay_and_phase", "eigenvalues"]
