"""Independent streams of random numbers for the steps of preparing data, the same on every machine."""

from enum import IntEnum

import numpy as np
import numpy.typing as npt


class Stream(IntEnum):
    """Steps that draw from a stream of their own, so that none depends on what another draws."""

    PARTITION = 101
    SPLIT = 102
    REQUEST = 103
    EDGE_ATTACK = 104
    LABEL_SHIFT = 105


def generator(seed: int, stream: Stream, *parts: int) -> np.random.Generator:
    """Random numbers of one step.

    Args:
        seed: Seed of the data, not negative.
        stream: The step.
        parts: Further numbers that name the stream, not negative; a client for instance.

    Returns:
        A generator keyed by all of them.
    """
    return np.random.default_rng([seed, stream, *parts])


def keys(*parts: int | npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """One random number for each item, which depends on nothing but the numbers that name the item.

    The smallest keys of a set are a sample of it without replacement, and a larger sample holds the smaller ones.

    Args:
        parts: Numbers, or arrays `[M]` of them; for instance a seed, a stream and the items' ids.

    Returns:
        The mixed 64-bit numbers `[M]` (splitmix64's finaliser).
    """
    key = np.zeros(np.broadcast_shapes(*(np.shape(part) for part in parts)), np.uint64)
    for part in parts:
        key = key + np.asarray(part, np.int64).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        key = key ^ (key >> np.uint64(31))
    return key
