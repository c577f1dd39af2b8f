"""Graphs in one `.npz` file, in any of the three layouts in use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from page_lightning.data.readers.reading import reading
from page_lightning.data.source import SourceGraph
from page_lightning.errors import DataSourceError


def read_npz(path: Path, name: str) -> SourceGraph:
    """Read a `.npz` file.

    Layouts, told apart by their keys:

    - `x [N, F]`, `edge_index [2, E]`, `y [N]`, and optionally `train_mask`, `val_mask`, `test_mask` `[N]` or `[N, S]`;
    - heterophilous-graphs (Platonov et al., 2023): `node_features`, `node_labels`, `edges [E, 2]`, `train_masks`,
      `val_masks`, `test_masks` `[S, N]`;
    - gnn-benchmark (Shchur et al., 2018): CSR parts `adj_*`, `attr_*` and `labels`; features become 0/1 as in PyG.

    Args:
        path: The file.
        name: Name of the graph.

    Returns:
        The graph; its published edge count is that after adding the reverse edges, as in PyG.

    Raises:
        DataSourceError: The file is missing, damaged or in another layout.
    """
    with reading(path), np.load(path, allow_pickle=False) as file:
        keys = set(file.files)
        if {"x", "edge_index", "y"} <= keys:
            masks = _masks(file, "mask")
            return SourceGraph.from_arrays(name, file["x"], file["edge_index"], file["y"], masks=masks)
        if {"node_features", "node_labels", "edges"} <= keys:
            masks = _masks(file, "masks")
            masks = None if masks is None else {split: mask.T for split, mask in masks.items()}
            return SourceGraph.from_arrays(
                name, file["node_features"], file["edges"].T, file["node_labels"], masks=masks
            )
        if {"adj_indptr", "attr_indptr", "labels"} <= keys:
            adjacency = _csr(file, "adj").tocoo()
            x = _csr(file, "attr")
            x.data = np.where(x.data > 0, 1, x.data)
            return SourceGraph.from_arrays(name, x, np.stack([adjacency.row, adjacency.col]), file["labels"])
    msg = f"{path}: holds none of the known sets of keys, such as x, edge_index, y; it has {', '.join(sorted(keys))}"
    raise DataSourceError(msg)


def _masks(file: Mapping[str, Any], suffix: str) -> dict[str, npt.NDArray[np.bool_]] | None:
    if not all(f"{split}_{suffix}" in file for split in ("train", "val", "test")):
        return None
    return {split: file[f"{split}_{suffix}"] for split in ("train", "val", "test")}


def _csr(file: Mapping[str, Any], prefix: str) -> sp.csr_matrix:
    parts = tuple(file[f"{prefix}_{part}"] for part in ("data", "indices", "indptr"))
    matrix = sp.csr_matrix(parts, shape=tuple(file[f"{prefix}_shape"]))
    matrix.check_format(full_check=True)
    return matrix
