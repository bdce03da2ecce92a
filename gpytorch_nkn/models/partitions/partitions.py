"""Partitions of input columns: moves between them, and Metropolis sampling."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from torch import Tensor

__all__ = [
    "Partition",
    "canonical_partition",
    "co_occurrence",
    "labels_of",
    "log_proposal_probability",
    "metropolis",
    "partition_of",
    "propose",
]

# Groups of column numbers, each ascending, in the order of their smallest columns.
Partition = tuple[tuple[int, ...], ...]


def canonical_partition(groups: Iterable[Iterable[int]], num_columns: int) -> Partition:
    """Return the groups in canonical order.

    Args:
        groups: Groups of column numbers.
        num_columns: Number of columns, each of which must be in exactly one group.

    Raises:
        ValueError: A group is empty, or the groups are no partition of the columns.
    """
    partition = tuple(sorted(tuple(sorted(int(column) for column in group)) for group in groups))
    columns = sorted(column for group in partition for column in group)
    if not all(partition) or columns != list(range(num_columns)):
        raise ValueError(
            f"Expected groups that hold each of the columns 0 to {num_columns - 1} once, got "
            f"{partition}."
        )
    return partition


def labels_of(partition: Partition) -> list[int]:
    """Return the group number of every column."""
    labels = {column: number for number, group in enumerate(partition) for column in group}
    return [labels[column] for column in range(len(labels))]


def partition_of(labels: Sequence[int]) -> Partition:
    """Return the partition whose groups are the columns with equal labels."""
    groups: dict[int, list[int]] = {}
    for column, label in enumerate(labels):
        groups.setdefault(label, []).append(column)
    return tuple(tuple(group) for group in groups.values())


def co_occurrence(labels: Tensor) -> Tensor:
    """Share of partitions in which two columns are in one group.

    Args:
        labels: Group numbers ``S x D`` of ``S`` partitions.

    Returns:
        Shares ``D x D`` in float64, one on the diagonal.
    """
    same = labels.unsqueeze(-1) == labels.unsqueeze(-2)  # S x D x D
    return same.double().mean(0)


def propose(partition: Partition, rng: random.Random) -> Partition:
    """Draw a neighbour of the partition: split a group, merge two, or move a column.

    A kind of move is drawn uniformly among those that are possible, then its parts: for a split
    a group of two or more, the size of the smaller part, and its columns; for a merge two groups;
    for a move a column that is not alone in its group, and another group to go to. All divisions
    of a group being equally likely, one into nearly equal halves would come nearly always. Only
    one kind, and one move of that kind, leads from a partition to another. A single column has no
    neighbour and stays.
    """
    kinds = _possible_kinds(partition)
    if not kinds:
        return partition
    kind = rng.choice(kinds)
    if kind == "split":
        group = rng.choice([g for g in partition if len(g) > 1])
        part = tuple(rng.sample(group, rng.randint(1, len(group) // 2)))
        rest = tuple(column for column in group if column not in part)
        return _replace(partition, (group,), (rest, part))
    if kind == "merge":
        pair = rng.sample(partition, 2)
        return _replace(partition, pair, (pair[0] + pair[1],))
    column, source = rng.choice([(c, g) for g in partition if len(g) > 1 for c in g])
    target = rng.choice([g for g in partition if g != source])
    rest = tuple(c for c in source if c != column)
    return _replace(partition, (source, target), (rest, (*target, column)))


def log_proposal_probability(partition: Partition, neighbour: Partition) -> float:
    """Log probability with which :func:`propose` draws ``neighbour`` from ``partition``."""
    kinds = _possible_kinds(partition)
    if not kinds:
        return 0.0 if neighbour == partition else -math.inf
    old = [set(g) for g in partition if g not in neighbour]
    new = [set(g) for g in neighbour if g not in partition]
    if (len(old), len(new)) == (1, 2):
        size, part = len(old[0]), min(len(new[0]), len(new[1]))
        divisions = math.comb(size, part)
        if 2 * part == size:  # either half may be drawn as the part
            divisions //= 2
        ways = sum(len(g) > 1 for g in partition) * (size // 2) * divisions
    elif (len(old), len(new)) == (2, 1):
        ways = math.comb(len(partition), 2)
    elif (len(old), len(new)) == (2, 2) and any(
        len(u - a) == 1 and a < u for u in old for a in new
    ):
        movable = sum(len(g) for g in partition if len(g) > 1)
        ways = movable * (len(partition) - 1)
    else:
        return -math.inf
    return -math.log(len(kinds) * ways)


def metropolis(
    start: Partition,
    log_target: Callable[[Partition, Partition], float],
    rng: random.Random,
) -> Iterator[Partition]:
    """Yield the states of a Metropolis-Hastings chain after ``start``, for ever.

    Args:
        start: First state, which is not yielded.
        log_target: Log density of its first argument up to a constant; the second one is the
            state from which it was proposed. It must return equal values for equal partitions.
        rng: Source of all random draws.
    """
    state, value = start, log_target(start, start)
    while True:
        candidate = propose(state, rng)
        threshold = rng.random()  # drawn at every step: the stream does not depend on outcomes
        if candidate != state:
            candidate_value = log_target(candidate, state)
            log_ratio = (
                candidate_value
                - value
                + log_proposal_probability(candidate, state)
                - log_proposal_probability(state, candidate)
            )
            if log_ratio >= 0 or threshold < math.exp(log_ratio):
                state, value = candidate, candidate_value
        yield state


def _possible_kinds(partition: Partition) -> list[str]:
    several = len(partition) > 1
    large = any(len(g) > 1 for g in partition)
    possible = {"split": large, "merge": several, "move": several and large}
    return [kind for kind, here in possible.items() if here]


def _replace(
    partition: Partition, old: Sequence[tuple[int, ...]], new: Sequence[tuple[int, ...]]
) -> Partition:
    kept = [g for g in partition if g not in old]
    return tuple(sorted([*kept, *(tuple(sorted(g)) for g in new)]))
