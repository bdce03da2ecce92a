"""How one restart is trained."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Recipe"]


@dataclass(frozen=True)
class Recipe:
    """Steps of Adam, then iterations of L-BFGS.

    Adam first, because from data-driven starts it finds the periods of a series nearly always
    where L-BFGS alone stops in the nearest poor optimum; L-BFGS then converges in few steps.

    Attributes:
        adam_steps: Steps of Adam; 0 skips it.
        learning_rate: Of Adam.
        anneal: Let the learning rate fall to zero over the second half.
        lbfgs_iterations: Largest number of L-BFGS iterations; 0 skips it.
    """

    adam_steps: int = 300
    learning_rate: float = 3e-2
    anneal: bool = True
    lbfgs_iterations: int = 60

    def __post_init__(self) -> None:
        if min(self.adam_steps, self.lbfgs_iterations) < 0 or not self.learning_rate > 0:
            raise ValueError(
                "A recipe needs steps of at least 0 and a positive learning rate, got "
                f"adam_steps={self.adam_steps}, lbfgs_iterations={self.lbfgs_iterations}, "
                f"learning_rate={self.learning_rate}."
            )

    @classmethod
    def paper(cls) -> Recipe:
        """Adam at 1e-3 for 20,000 steps (Sun et al. 2018, appendix J.1)."""
        return cls(adam_steps=20_000, learning_rate=1e-3, anneal=False, lbfgs_iterations=0)
