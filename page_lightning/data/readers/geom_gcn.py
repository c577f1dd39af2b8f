"""Geom-GCN's text files (Pei et al., 2020): Chameleon, Squirrel and Actor."""

from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from page_lightning.data.readers.reading import reading
from page_lightning.data.source import SourceGraph
from page_lightning.errors import DataSourceError

NODE_FILE, EDGE_FILE = "out1_node_feature_label.txt", "out1_graph_edges.txt"


def read_geom_gcn(folder: Path, name: str, index_features: bool) -> SourceGraph:
    """Read Geom-GCN's node and edge files and, where they lie beside them, its ten splits.

    Args:
        folder: The `raw` folder.
        name: Canonical name.
        index_features: Whether a node lists the indices of its words (Actor) rather than all feature values.

    Returns:
        The graph; its published edge count is that of the distinct directed edges, self-loops included, as in PyG.

    Raises:
        DataSourceError: A file is missing or damaged.
    """
    with reading(folder / NODE_FILE):
        lines = (folder / NODE_FILE).read_text().splitlines()[1:]
        node, words, label = zip(*(line.split("\t") for line in lines), strict=True)
        order = np.argsort(np.array(node, np.int64))
        y = np.array(label, np.int64)[order]
        if len(np.unique(node)) != len(y):
            msg = f"{folder / NODE_FILE}: a node is listed twice"
            raise DataSourceError(msg)
        rows = [np.fromstring(words[i], sep=",", dtype=np.float32) for i in order]
        x = _indicator(rows) if index_features else np.stack(rows)
    with reading(folder / EDGE_FILE):
        text = (folder / EDGE_FILE).read_text().splitlines()[1:]
        edges = np.array([line.split("\t") for line in text], np.int64).T
        num_raw_edges = np.unique(edges, axis=1).shape[1]
    return SourceGraph.from_arrays(name, x, edges, y, masks=_splits(folder), num_raw_edges=num_raw_edges)


def _indicator(rows: list[npt.NDArray[np.float32]]) -> sp.csr_matrix:
    """0/1 matrix `[N, F]` with ones at each row's listed columns."""
    columns = np.fromiter(chain.from_iterable(rows), np.int64)
    indptr = np.cumsum([0, *map(len, rows)])
    matrix = sp.csr_matrix((np.ones(len(columns), np.float32), columns, indptr))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _splits(folder: Path) -> dict[str, npt.NDArray[np.bool_]] | None:
    """The official masks `[N, S]`; None where no split file is there."""
    files = sorted(folder.glob("*_split_0.6_0.2_?.npz"))
    columns: dict[str, list[npt.NDArray[np.bool_]]] = {"train": [], "val": [], "test": []}
    for path in files:
        with reading(path), np.load(path, allow_pickle=False) as file:
            for split, masks in columns.items():
                masks.append(file[f"{split}_mask"].astype(bool))
    return {split: np.stack(masks, axis=1) for split, masks in columns.items()} if files else None
