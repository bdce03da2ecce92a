"""How much of a fit each term of a kernel carries."""

from __future__ import annotations

from dataclasses import replace

import torch

from gpytorch_nkn.interpretation.expansion.expansion import Expansion, evaluate_strips
from gpytorch_nkn.interpretation.source import FittedGP

__all__ = ["with_posterior_shares"]


def with_posterior_shares(expansion: Expansion, gp: FittedGP) -> Expansion:
    r"""The expansion with the share of each term in the variance of the posterior mean.

    .. math:: \mathrm{cov}(m_t, m) / \mathrm{var}(m), \qquad m_t = w_t K_t\, \alpha

    over the training inputs, where m is the posterior mean less the mean function; averaged over
    outputs. Shares add up to one but for what was dropped, and are negative for terms that move
    against the others.
    """
    alpha = gp.posterior.alpha.unsqueeze(-1)
    groups = [[term] for term in expansion.terms]
    strips = [(strip @ alpha)[..., 0] for strip in evaluate_strips(groups, gp.inputs, gp.inputs)]
    means = torch.cat(strips, dim=-1)  # T x ... x N
    centered = means - means.mean(-1, keepdim=True)
    whole = gp.covariance @ alpha
    whole = (whole - whole.mean(-2, keepdim=True))[..., 0]
    variance = whole.square().mean(-1).clamp_min(1e-300)
    shares = ((centered * whole).mean(-1) / variance).reshape(len(groups), -1).mean(-1)
    terms = tuple(
        replace(term, posterior_share=share)
        for term, share in zip(expansion.terms, shares.tolist(), strict=True)
    )
    return replace(expansion, terms=terms)
