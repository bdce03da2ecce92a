import math
import random
from collections import Counter
from itertools import islice

import pytest
import torch

from gpytorch_nkn.models.partitions.partitions import (
    canonical_partition,
    co_occurrence,
    labels_of,
    log_proposal_probability,
    metropolis,
    partition_of,
    propose,
)
from tests.models.partitions.every_partition import all_partitions

FOUR = all_partitions(4)  # fifteen


def proposal_matrix(partitions):
    return torch.tensor(
        [[math.exp(log_proposal_probability(p, q)) for q in partitions] for p in partitions]
    )


def made_up_scores(seed=3):
    """Log probabilities that differ by up to some nats, normalised."""
    draw = torch.randn(len(FOUR), generator=torch.Generator().manual_seed(seed))
    return (1.5 * draw).log_softmax(0)


def test_canonical_order():
    assert canonical_partition([[3, 1], (2,), {0}], 4) == ((0,), (1, 3), (2,))


@pytest.mark.parametrize("groups", [[[0, 1]], [[0, 1], [1, 2]], [[0, 1, 2], []], [[0, 1, 2, 3]]])
def test_what_is_no_partition_is_named(groups):
    with pytest.raises(ValueError, match=r"columns 0 to 2 once, got \("):
        canonical_partition(groups, 3)


def test_all_partitions_are_as_many_as_bells_numbers_and_differ():
    for num_columns, bell in enumerate([1, 1, 2, 5, 15, 52, 203]):
        partitions = all_partitions(num_columns)
        assert len(set(partitions)) == len(partitions) == bell
        assert all(canonical_partition(p, num_columns) == p for p in partitions)


def test_labels_and_back():
    assert labels_of(((0, 2), (1,), (3,))) == [0, 1, 0, 2]
    assert all(partition_of(labels_of(p)) == p for p in FOUR)


def test_co_occurrence_counts_common_groups():
    labels = torch.tensor([labels_of(((0, 2), (1,))), labels_of(((0,), (1, 2)))])
    expected = torch.tensor([[1, 0, 0.5], [0, 1, 0.5], [0.5, 0.5, 1]])
    torch.testing.assert_close(co_occurrence(labels), expected)


@pytest.mark.parametrize("num_columns", [1, 2, 3, 4, 5, 6])
def test_proposal_probabilities_add_up_to_one_and_every_way_leads_back(num_columns):
    q = proposal_matrix(all_partitions(num_columns))
    torch.testing.assert_close(q.sum(-1), torch.ones(len(q)))
    assert torch.equal(q > 0, (q > 0).T)
    assert num_columns == 1 or not q.diagonal().any()


def test_proposal_probabilities_counted_by_hand():
    # three kinds; groups of two or more: one, with parts of one or two columns, 4 x 1 / 2 + 3 of
    # them; a column of the four to the other group; the only pair
    first = ((0, 1, 2, 3), (4,))
    expected = {
        ((0,), (1, 2, 3), (4,)): 1 / 3 / 2 / 4,
        ((0, 1), (2, 3), (4,)): 1 / 3 / 2 / 3,
        ((0, 1, 2, 3, 4),): 1 / 3,
        ((0, 1, 2), (3, 4)): 1 / 3 / 4,
        ((0, 1), (2, 3, 4)): 0.0,  # two columns at once
        ((0,), (1,), (2, 3), (4,)): 0.0,
    }
    for second, probability in expected.items():
        assert math.exp(log_proposal_probability(first, second)) == pytest.approx(probability)
    # from pairs: two groups to divide in one way; six columns none of which is alone, two targets
    second = ((0, 1), (2, 3), (4, 5))
    moved = ((0,), (1, 2, 3), (4, 5))
    assert math.exp(log_proposal_probability(second, moved)) == pytest.approx(1 / 3 / 6 / 2)
    # back: five columns that are not alone
    assert math.exp(log_proposal_probability(moved, second)) == pytest.approx(1 / 3 / 5 / 2)


def test_proposals_come_with_the_probabilities_stated():
    rng, draws = random.Random(1), 2500
    for partition in [*FOUR, ((0, 1, 2, 3), (4, 5)), ((0, 1, 2, 3, 4),)]:
        counts = Counter(propose(partition, rng) for _ in range(draws))
        for neighbour in all_partitions(sum(map(len, partition))):
            p = math.exp(log_proposal_probability(partition, neighbour))
            error = math.sqrt(draws * p * (1 - p))
            assert abs(counts[neighbour] - draws * p) <= 5 * error, (partition, neighbour)


def transition_matrix(log_target):
    """Metropolis-Hastings transitions, written out from the stated proposal probabilities."""
    q, pi = proposal_matrix(FOUR), log_target.exp()
    forward = pi.unsqueeze(-1) * q
    accept = torch.where(q > 0, forward.T / forward, 0).clamp(max=1)
    moves = q * accept
    return moves + (1 - moves.sum(-1)).diag()


def test_detailed_balance_is_exact():
    log_target = made_up_scores()
    flow = log_target.exp().unsqueeze(-1) * transition_matrix(log_target)
    torch.testing.assert_close(flow, flow.T, rtol=1e-12, atol=1e-15)


def test_one_step_of_the_sampler_is_the_transition_written_out():
    log_target = made_up_scores()
    table = dict(zip(FOUR, log_target.tolist(), strict=True))
    expected, rng, draws = transition_matrix(log_target), random.Random(2), 1500
    for row, start in zip(expected, FOUR, strict=True):
        chain = (metropolis(start, lambda p, origin: table[p], rng) for _ in range(draws))
        counts = Counter(next(steps) for steps in chain)
        for p, end in zip(row.tolist(), FOUR, strict=True):
            error = math.sqrt(draws * p * (1 - p)) + 1e-9
            assert abs(counts[end] - draws * p) <= 5 * error, (start, end)


def test_frequencies_of_a_chain_match_the_target():
    log_target = made_up_scores()
    table = dict(zip(FOUR, log_target.tolist(), strict=True))
    transition, pi, steps = transition_matrix(log_target), log_target.exp(), 25_000
    chain = metropolis(FOUR[0], lambda p, origin: table[p], random.Random(0))
    counts = Counter(islice(chain, steps))
    # asymptotic variance of a frequency: that of independent draws, plus their correlations
    fundamental = torch.linalg.inv(torch.eye(len(FOUR)) - transition + pi)
    variance = pi * (2 * fundamental.diagonal() - 1 - pi)
    for number, partition in enumerate(FOUR):
        error = math.sqrt(variance[number].item() / steps)
        assert abs(counts[partition] / steps - pi[number].item()) < 4 * error, partition
    # without the Hastings correction the chain would settle elsewhere, far beyond these errors
    q = proposal_matrix(FOUR)
    moves = q * (pi / pi.unsqueeze(-1)).clamp(max=1)
    uncorrected = torch.linalg.matrix_power(moves + (1 - moves.sum(-1)).diag(), 4096)[0]
    assert ((uncorrected - pi).abs() > 10 * (variance / steps).sqrt()).any()


def test_a_target_is_asked_with_the_state_that_proposed():
    asked = []

    def log_target(partition, origin):
        asked.append((partition, origin))
        return 0.0

    states = [FOUR[0], *islice(metropolis(FOUR[0], log_target, random.Random(0)), 20)]
    assert asked[0] == (FOUR[0], FOUR[0])
    assert all(log_proposal_probability(o, p) > -math.inf for p, o in asked[1:])
    assert [origin for _, origin in asked[1:]] == states[:-1]


def test_impossible_partitions_are_never_entered():
    def log_target(partition, origin):
        return -math.inf if len(partition) == 1 else 0.0

    chain = metropolis(FOUR[-1], log_target, random.Random(0))
    assert ((0, 1, 2, 3),) not in set(islice(chain, 2000))


def test_a_single_column_stays():
    chain = metropolis(((0,),), lambda p, origin: 0.0, random.Random(0))
    assert set(islice(chain, 5)) == {((0,),)}
    assert log_proposal_probability(((0,),), ((0,),)) == 0


def test_draws_depend_on_the_generator_alone():
    before = random.getstate(), torch.get_rng_state()
    chains = [
        list(islice(metropolis(FOUR[0], lambda p, origin: 0.0, random.Random(seed)), 50))
        for seed in (5, 5, 6)
    ]
    assert chains[0] == chains[1] != chains[2]
    assert random.getstate() == before[0] and torch.equal(torch.get_rng_state(), before[1])
