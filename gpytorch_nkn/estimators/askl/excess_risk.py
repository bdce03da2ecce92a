"""The data-dependent part of the bound on the excess risk of spectral kernel learning."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ExcessRiskBound"]


@dataclass(frozen=True)
class ExcessRiskBound:
    r"""Equations (11) and (12) of the paper, term by term, at ``n`` rows with ``K`` outputs.

    .. math::
        \mathcal E(\hat f) - \mathcal E(f^*) \le 4 \sqrt 2 L \hat{\mathcal R}
            + O\bigl(\sqrt{\log(1/\delta) / n}\bigr), \qquad
        \hat{\mathcal R} \le \frac Bn \sqrt{K \sum_i \lVert\phi(x_i)\rVert^2}

    Attributes:
        trace_norm: ``B``, that of the trained weights.
        mean_squared_norm: Mean of the squared norms of the features ``phi`` (last layer).
        rademacher: The bound on the Rademacher complexity, first form of (12), with the features
            ``phi`` that the estimator uses.
        rademacher_spectral: The second form of (12), by the frequencies alone. It is exactly the
            first form with the features ``psi`` (sines and cosines, no phases); with ``phi`` the
            two agree in expectation over the phases, and differ by about one over the square
            root of the number of features. For a stationary kernel it is ``B sqrt(K / n)``. With
            several layers it is that of the last one, given what it sees.
        lipschitz: ``L``, of the loss in the Euclidean norm of the outputs: the square root of 2
            for the hinge loss and the log loss, infinite for the squared loss, which has none on
            unbounded outputs.
        complexity: ``4 sqrt(2) L`` times ``rademacher``, the first term of (11).

    It compares models and settings on the same data; as a bound it is loose, and not strictly one
    for what was trained:

    - ``B`` is the supremum over the hypotheses in the paper, and has to be fixed beforehand; here
      it is what training arrived at. The intercept is not counted.
    - (12) holds for a fixed feature map. The supremum over learned frequencies is left out.
    - Its proof (18) pairs the trace norm of the weights with a Frobenius norm, where the dual of
      the trace norm is the spectral norm, which is smaller. The same step holds with the Frobenius
      norm of the weights, which is never larger than the trace norm: by this proof the trace norm
      earns nothing over it.
    - The paper's text takes ``k(x, x)`` for ``cos((w - w')' x)``; it is half of one plus that, as
      in (12), between 0 and 1.

    Reference: Li, Liu and Wang (2020), theorem 3.
    """

    trace_norm: float
    mean_squared_norm: float
    rademacher: float
    rademacher_spectral: float
    lipschitz: float
    complexity: float
