"""The named data sets: where their files lie, how they are read, and what they must hold."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from page_lightning.data.readers.geom_gcn import EDGE_FILE, NODE_FILE, read_geom_gcn
from page_lightning.data.readers.npz import read_npz
from page_lightning.data.readers.planetoid import PLANETOID_PARTS, read_planetoid
from page_lightning.data.source import SourceGraph

PLANETOID_URL = "https://github.com/kimiyoung/planetoid/raw/master/data"
BENCHMARK_URL = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
HETEROPHILOUS_URL = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"
GEOM_GCN_URL = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/f1fc0d14b3b019c562737240d06ec83b07d16a8f"


@dataclass(frozen=True)
class Statistics:
    """What a data set must hold: nodes, edges as PyG counts them, features and classes."""

    nodes: int
    edges: int
    features: int
    classes: int

    @classmethod
    def of(cls, graph: SourceGraph) -> "Statistics":
        """The statistics of a loaded graph."""
        return cls(graph.num_nodes, graph.num_raw_edges, graph.num_features, graph.num_classes)


@dataclass(frozen=True)
class Publication:
    """One published form of a data set.

    Attributes:
        folder: Folder below `data.root`, the one PyG's own class uses where there is such a class.
        urls: Address of each file, by its name in the folder.
        read: Reads the folder.
        statistics: What the result must hold.
    """

    folder: str
    urls: dict[str, str]
    read: Callable[[Path], SourceGraph]
    statistics: Statistics


def _planetoid(name: str, *counts: int) -> tuple[Publication, ...]:
    files = [f"ind.{name.lower()}.{part}" for part in PLANETOID_PARTS]
    urls = {file: f"{PLANETOID_URL}/{file}" for file in files}
    read = partial(read_planetoid, name=name)
    return (Publication(f"{name}/raw", urls, read, Statistics(*counts)),)


def _npz(name: str, folder: str, file: str, url: str, *counts: int) -> Publication:
    def read(folder: Path) -> SourceGraph:
        return read_npz(folder / file, name)

    return Publication(folder, {file: f"{url}/{file}"}, read, Statistics(*counts))


def _benchmark(name: str, file: str, *counts: int) -> tuple[Publication, ...]:
    return (_npz(name, f"{name}/raw", f"{file}.npz", BENCHMARK_URL, *counts),)


def _heterophilous(name: str, *counts: int) -> tuple[Publication, ...]:
    stem = name.lower().replace("-", "_")
    return (_npz(name, f"{stem}/raw", f"{stem}.npz", HETEROPHILOUS_URL, *counts),)


def _geom_gcn(name: str, folder: str, stem: str, *counts: int) -> Publication:
    urls = {file: f"{GEOM_GCN_URL}/new_data/{stem}/{file}" for file in (NODE_FILE, EDGE_FILE)}
    splits = [f"{stem}_split_0.6_0.2_{i}.npz" for i in range(10)]
    urls |= {file: f"{GEOM_GCN_URL}/splits/{file}" for file in splits}
    read = partial(read_geom_gcn, name=name, index_features=stem == "film")
    return Publication(folder, urls, read, Statistics(*counts))


CATALOGUE: dict[str, tuple[Publication, ...]] = {
    "Cora": _planetoid("Cora", 2708, 10556, 1433, 7),
    "CiteSeer": _planetoid("CiteSeer", 3327, 9104, 3703, 6),
    "PubMed": _planetoid("PubMed", 19717, 88648, 500, 3),
    "Photo": _benchmark("Photo", "amazon_electronics_photo", 7650, 238162, 745, 8),
    "Computers": _benchmark("Computers", "amazon_electronics_computers", 13752, 491722, 767, 10),
    "CS": _benchmark("CS", "ms_academic_cs", 18333, 163788, 6805, 15),
    "Physics": _benchmark("Physics", "ms_academic_phy", 34493, 495924, 8415, 5),
    "Chameleon": (_geom_gcn("Chameleon", "chameleon/geom_gcn/raw", "chameleon", 2277, 36101, 2325, 5),),
    "Squirrel": (
        _geom_gcn("Squirrel", "squirrel/geom_gcn/raw", "squirrel", 5201, 217073, 2089, 5),
        _npz("Squirrel", "extras/heterophilous", "squirrel.npz", HETEROPHILOUS_URL, 5201, 396706, 2089, 5),
    ),
    "Actor": (_geom_gcn("Actor", "actor/raw", "film", 7600, 30019, 932, 5),),
    "Minesweeper": _heterophilous("Minesweeper", 10000, 78804, 7, 2),
    "Tolokers": _heterophilous("Tolokers", 11758, 1038000, 10, 2),
    "Roman-empire": _heterophilous("Roman-empire", 22662, 65854, 300, 18),
    "Amazon-ratings": _heterophilous("Amazon-ratings", 24492, 186100, 300, 5),
    "Questions": _heterophilous("Questions", 48921, 307080, 301, 2),
}
"""Published forms of each data set read from files, the preferred one first."""

OGBN_ARXIV_STATISTICS = Statistics(169343, 1166243, 128, 40)
OGBN_ARXIV_URL = "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
