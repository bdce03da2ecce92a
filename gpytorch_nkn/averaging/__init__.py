"""Model averaging: training and scores of candidates, stacking weights, predictive mixtures."""

from gpytorch_nkn.averaging.predictive_mixture import (
    MixturePredictions as MixturePredictions,
    PredictiveMixture as PredictiveMixture,
)
from gpytorch_nkn.averaging.scores import (
    leave_blocks_out as leave_blocks_out,
    leave_one_out as leave_one_out,
    rolling_forecasts as rolling_forecasts,
)
from gpytorch_nkn.averaging.search import (
    Trained as Trained,
    train_candidates as train_candidates,
    warn_of_untrained as warn_of_untrained,
)
from gpytorch_nkn.averaging.stacking import (
    WIDTHS as WIDTHS,
    stack_predictions as stack_predictions,
    stacking_weights,
    weigh_unique as weigh_unique,
)
from gpytorch_nkn.averaging.transforms import (
    TRANSFORMS as TRANSFORMS,
    OrderedProbit as OrderedProbit,
    Transform as Transform,
    as_bounds as as_bounds,
    candidate_transforms as candidate_transforms,
)

__all__ = ["stacking_weights"]
