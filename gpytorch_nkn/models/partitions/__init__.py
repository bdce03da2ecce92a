"""Additive GPs over learned groups of columns."""

from gpytorch_nkn.models.partitions.additive_partition_gp import AdditivePartitionGP
from gpytorch_nkn.models.partitions.fit_partitions import fit_additive_partition_gp

__all__ = ["AdditivePartitionGP", "fit_additive_partition_gp"]
