"""Seconds per epoch of spectral kernel learning beside a plain two-layer network of torch."""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from gpytorch_nkn.estimators import ASKLClassifier

__all__ = ["measure_cost"]

_COLUMNS = 22
_EPOCHS = 2  # beyond the first, which pays for what comes before training, too
_METHODS = ("SK", "SKL", "NSKL", "ASKL")


def measure_cost(rows: int, components: int, classes: int, batch_size: int, rounds: int) -> str:
    """A table: medians over the rounds of process time, and of its ratios to the plain network.

    Each round trains every method and the network, one after another, so that what else the
    machine does meets all of them. An epoch is the difference of trainings of three and of one,
    divided by two.

    Args:
        rows: For training, of 22 columns.
        components: Features, and hidden units of the network.
        classes: Number of classes.
        batch_size: Of the network; the estimators take 256 rows of 25,600 and more.
        rounds: Whose medians count.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, _COLUMNS)).astype(np.float32)
    y = np.sin(X @ rng.standard_normal((_COLUMNS, classes))).argmax(1)

    def estimator(method: str) -> Callable[[int], object]:
        def train(epochs: int) -> object:
            model = ASKLClassifier(
                method,
                n_components=components,
                gamma=1 / (2 * _COLUMNS),
                max_iter=epochs,
                early_stopping=False,
                random_state=0,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # one epoch does not converge
                return model.fit(X, y)

        return train

    trainings: dict[str, Callable[[int], object]] = {
        "network": lambda epochs: _plain_network(X, y, components, classes, batch_size, epochs)
    }
    trainings |= {method: estimator(method) for method in _METHODS}
    seconds: dict[str, list[float]] = {name: [] for name in trainings}
    for number in range(rounds):
        for name, train in trainings.items():
            seconds[name].append((_seconds(train, 1 + _EPOCHS) - _seconds(train, 1)) / _EPOCHS)
        print(f"round {number + 1}: {_latest(seconds)}", file=sys.stderr)
    lines = [
        f"{rows:,} rows, {_COLUMNS} columns, {classes} classes, {components} features or hidden "
        f"units, batches of {batch_size}, {rounds} rounds, one thread, torch {torch.__version__}",
        "",
        "| | CPU s per epoch | of the network's (range of the rounds) |",
        "| --- | --- | --- |",
    ]
    for name, found in seconds.items():
        ratios = [a / b for a, b in zip(found, seconds["network"], strict=True)]
        title = "Linear, ReLU, Linear; Adam (float32)" if name == "network" else name
        lines.append(
            f"| {title} | {statistics.median(found):.3g} | {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}) |"
        )
    return "\n".join(lines)


def _seconds(train: Callable[[int], object], epochs: int) -> float:
    start = time.process_time()
    train(epochs)
    return time.process_time() - start


def _latest(seconds: dict[str, list[float]]) -> str:
    return ", ".join(f"{name} {found[-1]:.3g} s" for name, found in seconds.items())


def _plain_network(
    X: np.ndarray, y: np.ndarray, hidden: int, classes: int, batch_size: int, epochs: int
) -> nn.Module:
    """As one would write it."""
    torch.manual_seed(0)
    inputs, targets = torch.from_numpy(X), torch.from_numpy(y)
    network = nn.Sequential(nn.Linear(X.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, classes))
    network.float()  # whatever the default is
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    loss = nn.CrossEntropyLoss()
    for _ in range(epochs):
        for batch in torch.randperm(len(inputs)).split(batch_size):
            optimizer.zero_grad()
            loss(network(inputs[batch]), targets[batch]).backward()
            optimizer.step()
    return network
