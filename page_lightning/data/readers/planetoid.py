"""Planetoid's eight files `ind.NAME.*`: Cora, CiteSeer and PubMed (Yang et al., 2016)."""

import io
import pickle
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from page_lightning.data.readers.reading import reading
from page_lightning.data.source import SourceGraph

PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_TRUSTED_PACKAGES = frozenset({"numpy", "scipy"})
_TRUSTED_NAMES = frozenset({("collections", "defaultdict"), ("builtins", "list"), ("__builtin__", "list")})


class _ArrayUnpickler(pickle.Unpickler):
    """Builds arrays, sparse matrices and dictionaries of lists, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - the signature of pickle
        if module.split(".")[0] not in _TRUSTED_PACKAGES and (module, name) not in _TRUSTED_NAMES:
            msg = f"{module}.{name} is not allowed"
            raise pickle.UnpicklingError(msg)
        # The files name modules that SciPy has since made private.
        return super().find_class("scipy.sparse" if module.startswith("scipy.sparse.") else module, name)


def read_planetoid(folder: Path, name: str) -> SourceGraph:
    """Read `folder/ind.NAME.*` as PyG's `Planetoid` does, with the public split, keeping features sparse.

    Args:
        folder: The `raw` folder.
        name: Canonical name; the file names hold it in lower case.

    Returns:
        The graph.

    Raises:
        DataSourceError: A file is missing or damaged.
    """
    parts = {part: _read_part(folder / f"ind.{name.lower()}.{part}") for part in PLANETOID_PARTS}
    with reading(folder / f"ind.{name.lower()}.*"):
        test = parts["test.index"]
        first, last = int(test.min()), int(test.max())
        # Test nodes that are in no file (CiteSeer has 15) are isolated: without features, of class 0.
        x = sp.vstack([parts["allx"], sp.csr_matrix((last + 1 - first, parts["allx"].shape[1]))], format="lil")
        onehot = np.concatenate([parts["ally"], np.zeros((last + 1 - first, parts["ally"].shape[1]))])
        x[test] = parts["tx"]
        onehot[test] = parts["ty"]
        num_nodes, num_train = len(onehot), len(parts["y"])

        neighbours = parts["graph"]
        source = np.repeat(list(neighbours), [len(targets) for targets in neighbours.values()])
        target = np.fromiter(chain.from_iterable(neighbours.values()), np.int64, len(source))
        node = np.arange(num_nodes)
        masks = {
            "train": node < num_train,
            "val": (node >= num_train) & (node < num_train + 500),
            "test": np.isin(node, test),
        }
        edges = np.stack([source, target])
        return SourceGraph.from_arrays(
            name, x.tocsr(), edges, onehot.argmax(1), num_classes=onehot.shape[1], masks=masks
        )


def _read_part(path: Path) -> Any:  # noqa: ANN401 - matrix, array or dictionary, as the part holds
    with reading(path):
        if path.name.endswith("test.index"):
            return np.array(path.read_text().split(), np.int64)
        return _ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
