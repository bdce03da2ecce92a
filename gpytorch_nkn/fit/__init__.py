"""Training: restarts, budgets, progress bars, and results."""

from gpytorch_nkn.fit.best_of import fit_best_of
from gpytorch_nkn.fit.in_stages import Rows as Rows, RowsGP as RowsGP, fit_in_stages
from gpytorch_nkn.fit.minimize import (
    FlatParameters as FlatParameters,
    Recipe,
    adam as adam,
    lbfgs as lbfgs,
)
from gpytorch_nkn.fit.objective import (
    GAUSSIAN_LIKELIHOODS as GAUSSIAN_LIKELIHOODS,
    Objective as Objective,
    check_model as check_model,
    flat_targets as flat_targets,
    log_prior as log_prior,
    noisy_prior as noisy_prior,
)
from gpytorch_nkn.fit.parallel import as_finished as as_finished, is_lost as is_lost
from gpytorch_nkn.fit.result import (
    Fit as Fit,
    FitResult,
    RestartRecord,
    Start as Start,
    copy_model as copy_model,
    evaluating as evaluating,
    in_mode as in_mode,
)
from gpytorch_nkn.fit.session import (
    Best as Best,
    Session as Session,
    options_of as options_of,
    warn_user as warn_user,
)
from gpytorch_nkn.fit.sizes import (
    SizeWarning,
    check_dense as check_dense,
    free_bytes as free_bytes,
    warn_of_size as warn_of_size,
)
from gpytorch_nkn.linalg import (
    check_counts as check_counts,
    check_flags as check_flags,
    check_number as check_number,
)

__all__ = ["FitResult", "Recipe", "RestartRecord", "SizeWarning", "fit_best_of", "fit_in_stages"]
