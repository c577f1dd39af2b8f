"""Independent streams of random numbers for the steps of preparing data, the same on every machine."""

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """Steps that draw from a stream of their own, so that none depends on what another draws."""

    PARTITION = 101
    SPLIT = 102


def generator(seed: int, stream: Stream) -> np.random.Generator:
    """Random numbers of one step.

    Args:
        seed: Seed of the data, not negative.
        stream: The step.

    Returns:
        A generator keyed by both.
    """
    return np.random.default_rng([seed, stream])
