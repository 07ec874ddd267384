"""The interface of all recurrences: pure functions on a dictionary of real float32 arrays. No model library here."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array, Features, Kernels, Mask, StateNorms, StepFeatures
from lrurun.nn.complex import Complex
from lrurun.nn.products import SMALL, Precision, product
from lrurun.nn.scan import join

Params = dict[str, Array]
"""Name -> real float32 array."""


def complex_parameter(params: Params, name: str, direction: str = "") -> Complex:
    """The complex array whose parts are trained under the names NAME_re and NAME_im, see `Recurrence.directions`."""
    return Complex(params[f"{name}_re{direction}"], params[f"{name}_im{direction}"])


class Recurrence(abc.ABC):
    """A sequence layer from H features to H features through a state of size N.

    Subclasses are final. They are built from their settings alone, hold no arrays, and may be shared between layers.
    Sequences are time-major: (T, B, H), or in `chunks`. A mask is (T, B), true at real positions; padding comes after
    them.
    """

    causal_only: ClassVar[bool] = False
    """Whether this kind has no bidirectional form: models that ask for one are then refused."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.scan is Recurrence.scan:
            cls.causal_only = True

    def __init__(
        self,
        settings: Any,
        *,
        width: int,
        state: int,
        bidirectional: bool = False,
        backend: str = "auto",
        precision: Precision = "tf32",
    ) -> None:
        """`settings` is the table of the kind, `width` is H, `state` is N, `backend` computes scans.

        `precision` is the precision of products with B and C.
        """
        self.settings = settings
        self.width = width
        self.state = state
        self.bidirectional = bidirectional
        self.backend = backend
        self.precision = precision

    @property
    @abc.abstractmethod
    def recurrent_parameters(self) -> frozenset[str]:
        """Names of the parameters in the recurrent group, which has its own learning rate and no weight decay."""

    @property
    def undecayed_parameters(self) -> frozenset[str]:
        """Names of parameters outside the recurrent group that have no weight decay either."""
        return frozenset()

    @property
    def mixes_sequences(self) -> bool:
        """Whether outputs depend on the other sequences of a batch: true of some controls alone."""
        return False

    @property
    def variances(self) -> Mapping[str, float]:
        """Name -> declared variance, of the parameters whose initial entries are independent with mean 0."""
        return {}

    @property
    def directions(self) -> tuple[str, ...]:
        """The endings of the names of C: "" for the forward direction and, in bidirectional layers, "_back"."""
        return ("", "_back") if self.bidirectional else ("",)

    def product(self, x: Array, w: Any) -> Any:
        """x (..., K) times the transpose of w (N, K), which may be `Complex`, as the product then is."""
        if isinstance(w, Complex):
            return Complex(self.product(x, w.real), self.product(x, w.imag))
        return product(x, w.T, self.precision, flatten=x.size >= SMALL)

    def chunks(self, length: int, batch: int) -> int:
        """The number of chunks of a sequence that `scan` processes side by side, a divisor of `length`; mostly 1.

        With more than one, it takes inputs (T, K, B, H) and a mask (T, K, B), see `lrurun.nn.scan.split`.
        """
        return 1

    @property
    def bounded(self) -> bool:
        """Whether outputs are finite at any length with the initial parameters."""
        return True

    @property
    def init_on_cpu(self) -> bool:
        """Whether `init` needs functions that jax has on the CPU only; it is then called there on every machine."""
        return False

    @abc.abstractmethod
    def init(self, key: Array) -> Params:
        """Initial parameters, float32, a pure function of `key`."""

    def across(self, layers: Sequence[Params]) -> list[Params] | None:
        """Parameters that a network adds to each of its `layers`, given all of theirs; None, mostly, for nothing."""
        return None

    def scan(self, params: Params, u: Features, mask: Mask | None = None) -> Features:
        """Outputs (T, B, H) for inputs `u` (T, B, H), computed in the fastest form of this kind.

        With `mask` (T, B), outputs at real positions do not depend on padding: the backward direction starts at the
        last real position of each sequence. Without it, every position is real. A kind without a `scan` of its own
        takes one `step` after the other, and is `causal_only`.
        """
        return jax.lax.scan(partial(self.step, params), self.initial_state(u.shape[1]), u)[1]

    def scan_and_norms(
        self, params: Params, u: Features, mask: Mask | None = None
    ) -> tuple[Features, Callable[[], StateNorms]]:
        """What `scan` returns, and a function without arguments that computes what `norms` does, (T, B).

        A network calls it where norms are asked for, in the function that called this one. A kind whose `scan` has the
        states of its forward direction takes the norms of those; the others compute the states again.
        """
        return self.scan(params, u, mask), lambda: self.norms(params, u if u.ndim == 3 else join(u))

    @abc.abstractmethod
    def initial_state(self, batch: int) -> Any:
        """The zero state of `batch` sequences for `step`: arrays (batch, ...), in most kinds (batch, N)."""

    @abc.abstractmethod
    def step(self, params: Params, state: Any, u: StepFeatures) -> tuple[Any, StepFeatures]:
        """The state after one input `u` (B, H), and the output (B, H) there.

        The arrays of the state may change their shape from step to step, as in attention; such a kind needs a `norms`
        of its own. Raises ValueError if the layer is bidirectional, because its outputs depend on later inputs.
        """

    def kernels(self, params: Params, length: int) -> Kernels | None:
        """The response of each channel to a unit impulse, (directions, `length`, H); None if this kind has none.

        Kinds whose channels do not mix may be computed as convolutions, see `lrurun.nn.convolution`. Entry k of the
        first kernel is the output k steps after the impulse; k = 0 includes D, the direct path from input to output.
        Entry k of the second kernel, of bidirectional layers, is the output k + 1 steps before it. So the effect of a
        backward direction on the current output belongs to the first kernel at k = 0.
        """
        return None

    def norms(self, params: Params, u: Features) -> StateNorms:
        """|x_k| (T, B), the norm of the state after each of the inputs `u` (T, B, H).

        For a bidirectional layer, of the state of its forward direction.
        """
        one_way = type(self)(
            self.settings, width=self.width, state=self.state, backend=self.backend, precision=self.precision
        )

        def body(state: Any, u_k: Array) -> tuple[Any, Array]:
            """The next state and its norm (B,), for one input `u_k` (B, H)."""
            state, _ = one_way.step(params, state, u_k)
            leaves = jax.tree.leaves(state)
            parts = [jnp.sum(jnp.square(jnp.abs(part)), axis=range(1, part.ndim)) for part in leaves]
            return state, jnp.sqrt(sum(parts[1:], parts[0]))

        return jax.lax.scan(body, one_way.initial_state(u.shape[1]), u)[1]

    def spectrum(self, params: Params) -> np.ndarray | None:
        """The eigenvalues of the map from state to state, complex; None if this kind does not define them.

        NaN where parameters are not finite.
        """
        return None

    def require_causal(self) -> None:
        """Raise ValueError if the layer is bidirectional."""
        if self.bidirectional:
            raise ValueError("a bidirectional recurrence has no step: its outputs depend on inputs still to come")
