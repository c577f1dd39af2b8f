"""A synthetic citation graph of ogbn-arxiv's size, for scale and timing where the real one cannot be had.

It is not ogbn-arxiv: edges and features are random draws. Report figures on it as "arxiv-sized synthetic graph".

Model:

- node `i` has its label, a second class similar to it, and a purity in (0, 1): near 0.91 for most nodes, near 0.16 for
  the mixed ones, which look like their second class and so set the ceiling of every classifier;
- it has a topic (Zipf sizes) in each of its two classes;
- it cites earlier papers, a log-normal Poisson number of them: each in its own class with probability purity, else in
  the second one; there inside the topic or in the class at large, by Pareto fitness and recency;
- its features are a purity-weighted mean of the two class prototypes, plus its topics', plus noise.
"""

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from page_lightning.data.readers.reading import reading
from page_lightning.data.source import SourceGraph
from page_lightning.errors import DataSourceError

NUM_NODES, NUM_EDGES, NUM_FEATURES = 169_343, 1_166_243, 128

# fmt: off
CLASS_COUNTS = np.array([
    565, 687, 4839, 2080, 5862, 4958, 1618, 589, 6232, 2820, 7869, 750, 29, 2358, 597, 403, 27321, 515, 749, 2877, 2076,
    393, 1903, 2834, 22187, 1257, 4605, 4801, 21406, 416, 11814, 2828, 411, 1271, 7867, 127, 3524, 2369, 1507, 2029,
])
YEAR_COUNTS = np.array([
    414, 261, 248, 355, 387, 415, 629, 968, 1302, 1931, 2499, 3564, 4427, 6435, 8135, 9154, 12035, 16339, 21442, 29799,
    39711, 8892,
])
# fmt: on
"""Papers of each class, and of each year from 1999 to 2020, in ogbn-arxiv."""

MIXED_SHARE, MIXED_PURITY, PURE_PURITY = 0.34, (1.5, 8.0), (10.0, 1.0)  # shares and Beta laws
TOPIC_SHARE, DEGREE_SIGMA, FITNESS_TAIL, RECENCY = 0.6, 0.9, 1.1, 1.5
CLASS_GAIN, TOPIC_GAIN, FEATURE_STD = 0.325, 0.10, 0.25

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def arxiv_sized(labels_folder: Path | None = None, seed: int = 0, num_nodes: int = NUM_NODES) -> SourceGraph:
    """Draw the graph, with the split by year: to 2017, 2018, from 2019.

    Args:
        labels_folder: Folder with ogbn-arxiv's real `node-label.csv.gz` and `node_year.csv.gz`; None draws labels and
            years from the real counts.
        seed: Seed of the draw.
        num_nodes: Number of nodes; with real labels, a random subset of this size. Edges are in proportion.

    Returns:
        A graph named "arxiv-sized" with 40 classes and 128 features.

    Raises:
        DataSourceError: `num_nodes` is out of range, or a label file is missing or damaged.
    """
    if not 100 <= num_nodes <= NUM_NODES:
        msg = f"data.source arxiv-sized: num_nodes {num_nodes} must be between 100 and {NUM_NODES}"
        raise DataSourceError(msg)
    rng = np.random.default_rng(seed)
    if labels_folder is None:
        y = rng.choice(len(CLASS_COUNTS), num_nodes, p=CLASS_COUNTS / CLASS_COUNTS.sum())
        year = 1999 + rng.choice(len(YEAR_COUNTS), num_nodes, p=YEAR_COUNTS / YEAR_COUNTS.sum())
    else:
        kept = np.sort(np.random.default_rng(seed).choice(NUM_NODES, num_nodes, replace=False))
        y = _column(labels_folder / "node-label.csv.gz")[kept]
        year = _column(labels_folder / "node_year.csv.gz")[kept]
    traits = _traits(y, year, rng)
    edges = _citations(traits, round(NUM_EDGES * num_nodes / NUM_NODES), rng)
    x = _features(traits, rng)
    masks = {"train": year <= 2017, "val": year == 2018, "test": year >= 2019}
    return SourceGraph.from_arrays(
        "arxiv-sized", x, edges, y, num_classes=len(CLASS_COUNTS), masks=masks, num_raw_edges=edges.shape[1]
    )


@dataclass(frozen=True)
class _Traits:
    """Hidden variables of the model; per node `[N]` but for the last two."""

    y: Ints
    second: Ints  # second class
    purity: Floats
    topic: Ints  # of the own class
    second_topic: Ints
    when: Floats  # rank in time, in [0, 1)
    num_topics: int
    position: Floats  # of each class in the space where similar ones are near [C, D]


def _column(path: Path) -> Ints:
    """The integers of a one-column `.csv.gz` file with a row for each of ogbn-arxiv's nodes."""
    with reading(path), gzip.open(path, "rt") as file:
        column = np.array(file.read().split(), dtype=np.int64)
    if len(column) != NUM_NODES:
        msg = f"{path}: has {len(column)} rows, expected {NUM_NODES}"
        raise DataSourceError(msg)
    return column


def _rowwise_draw(cdf: Floats, rows: Ints, rng: np.random.Generator) -> Ints:
    """One categorical draw for each element of `rows` from that row of `cdf`."""
    above = rng.random(len(rows))[:, None] > cdf[rows]
    draw: Ints = np.minimum(above.sum(1), cdf.shape[1] - 1)
    return draw


def _traits(y: Ints, year: Ints, rng: np.random.Generator) -> _Traits:
    num_nodes, num_classes = len(y), len(CLASS_COUNTS)
    time = year + rng.random(num_nodes)
    when = np.argsort(np.argsort(time, kind="stable")) / (num_nodes + 1.0)

    position = rng.standard_normal((num_classes, 6))
    distance = ((position[:, None] - position[None]) ** 2).sum(-1)
    similarity = np.exp(-distance / 12) * np.sqrt(CLASS_COUNTS)[None]
    np.fill_diagonal(similarity, 0)
    similarity /= similarity.sum(1, keepdims=True)
    second = _rowwise_draw(np.cumsum(similarity, 1), y, rng)

    mixed = rng.random(num_nodes) < MIXED_SHARE
    purity = np.where(mixed, rng.beta(*MIXED_PURITY, num_nodes), rng.beta(*PURE_PURITY, num_nodes))

    sizes = np.bincount(y, minlength=num_classes)
    topics = np.maximum(1, np.round((sizes / 40) ** 0.65)).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(topics)])
    cdf = np.ones((num_classes, topics.max()))
    for c in range(num_classes):
        weight = 1 / np.arange(1, topics[c] + 1) ** 0.8
        cdf[c, : topics[c]] = np.cumsum(weight / weight.sum())
    topic = first[y] + np.minimum(_rowwise_draw(cdf, y, rng), topics[y] - 1)
    second_topic = first[second] + np.minimum(_rowwise_draw(cdf, second, rng), topics[second] - 1)
    return _Traits(y, second, purity, topic, second_topic, when, int(first[-1]), position)


class _EarlierMembers:
    """Weighted draws among the earlier members of a block of nodes: a topic, a class or everything."""

    def __init__(self, block: Ints, when: Floats, fitness: Floats) -> None:
        self.order = np.lexsort((when, block))
        self.key = (block + when)[self.order]  # the block is the integer part
        self.cumulative = np.concatenate([[0.0], np.cumsum(fitness[self.order])])
        self.start = np.searchsorted(block[self.order], np.arange(block.max() + 2))

    def draw(self, block: Ints, when: Floats, rng: np.random.Generator) -> Ints:
        """A member of each `block` earlier than `when`; -1 where there is none."""
        low = self.start[np.minimum(block, len(self.start) - 1)]
        high = np.maximum(np.searchsorted(self.key, block + when, side="left"), low)
        bottom, top = self.cumulative[low], self.cumulative[high]
        target = top - (top - bottom) * rng.random(len(block)) ** RECENCY
        member = np.clip(np.searchsorted(self.cumulative, target, side="right") - 1, 0, len(self.order) - 1)
        member = np.minimum(np.maximum(member, low), np.maximum(high - 1, 0))
        return np.where(high > low, self.order[member], -1)


def _citations(traits: _Traits, num_edges: int, rng: np.random.Generator) -> Ints:
    """Distinct directed edges `[2, num_edges]`, from the later to the earlier paper."""
    num_nodes = len(traits.y)
    fitness = 1 + rng.pareto(FITNESS_TAIL, num_nodes)
    fitness = np.minimum(fitness, np.quantile(fitness, 1 - 5 / num_nodes))
    everything = np.zeros(num_nodes, np.int64)
    by_topic = _EarlierMembers(traits.topic, traits.when, fitness)
    by_class = _EarlierMembers(traits.y, traits.when, fitness)
    anywhere = _EarlierMembers(everything, traits.when, fitness)
    rate = rng.lognormal(0, DEGREE_SIGMA, num_nodes)
    rate *= max(num_edges * 1.04 - num_nodes, 0) / rate.sum()

    code = np.empty(0, np.int64)
    while len(code) < num_edges:
        missing = 1.3 * (num_edges - len(code)) / num_edges
        count = rng.poisson(rate * missing) if len(code) else 1 + rng.poisson(rate)
        source = np.repeat(np.arange(num_nodes), count)
        when, own = traits.when[source], rng.random(len(source)) < traits.purity[source]
        target = by_class.draw(np.where(own, traits.y[source], traits.second[source]), when, rng)
        near = rng.random(len(source)) < TOPIC_SHARE
        topic = np.where(own, traits.topic[source], traits.second_topic[source])
        target[near] = by_topic.draw(topic[near], when[near], rng)
        lost = target < 0
        target[lost] = anywhere.draw(everything[: lost.sum()], when[lost], rng)
        proper = (target >= 0) & (target != source)
        code = np.unique(np.concatenate([code, source[proper] * num_nodes + target[proper]]))
    code = np.sort(rng.choice(code, num_edges, replace=False))
    return np.stack([code // num_nodes, code % num_nodes])


def _features(traits: _Traits, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    num_classes, num_dims = traits.position.shape
    shared = traits.position @ rng.standard_normal((num_dims, NUM_FEATURES)) / np.sqrt(num_dims)
    prototype = 0.6 * shared + 0.8 * rng.standard_normal((num_classes, NUM_FEATURES))  # similar classes look alike
    topic = rng.standard_normal((traits.num_topics, NUM_FEATURES))
    x = rng.standard_normal((len(traits.y), NUM_FEATURES), dtype=np.float32)
    purity = traits.purity[:, None].astype(np.float32)
    for weight, c, t in ((purity, traits.y, traits.topic), (1 - purity, traits.second, traits.second_topic)):
        x += weight * (CLASS_GAIN * prototype[c] + TOPIC_GAIN * topic[t]).astype(np.float32)
    x *= np.float32(FEATURE_STD / x.std())
    return x
