"""PyG's `Data`: from a saved file, or made by a data-set class or function."""

import importlib
import inspect
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, Dataset
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from page_lightning.data.readers.reading import reading
from page_lightning.data.source import SPLIT_NAMES, SourceGraph
from page_lightning.errors import DataSourceError, PageLightningError

_multiarray = importlib.import_module("numpy._core.multiarray")  # where numpy 1.26 and 2 pickle arrays from

SAFE_GLOBALS = [
    Data,
    DataEdgeAttr,
    DataTensorAttr,
    GlobalStorage,
    np.ndarray,
    np.dtype,
    _multiarray._reconstruct,
    _multiarray.scalar,
    type(np.dtype("int64")),
    type(np.dtype("float32")),
]
"""What a saved PyG graph may be made of, for `torch.serialization.safe_globals`."""


def read_pt(path: Path, name: str) -> SourceGraph:
    """Read a `.pt` file that holds a `Data` or a dictionary with `x`, `edge_index` and `y`, running no code of it.

    Args:
        path: The file.
        name: Name of the graph.

    Returns:
        The graph.

    Raises:
        DataSourceError: The file is missing, damaged, or holds something else.
    """
    with reading(path), torch.serialization.safe_globals(SAFE_GLOBALS):
        content = torch.load(path, weights_only=True, map_location="cpu")
    if isinstance(content, Mapping):
        content = Data.from_dict(dict(content))
    if not isinstance(content, Data):
        msg = f"{path}: holds a {type(content).__name__}, expected a PyG Data or a dictionary with x, edge_index and y"
        raise DataSourceError(msg)
    return from_data(content, name)


def from_data(data: Data, name: str) -> SourceGraph:
    """Convert one PyG graph, with its `train_mask`, `val_mask` and `test_mask` where it has all three.

    Args:
        data: Homogeneous graph with `x`, `edge_index` and `y`.
        name: Name of the graph.

    Returns:
        The graph; its published edge count is `data.num_edges`.

    Raises:
        DataSourceError: An attribute is missing or not what it should be.
    """
    for attribute in ("x", "edge_index", "y"):
        if not isinstance(data.get(attribute), torch.Tensor):
            msg = f"data.source {name}: the graph has no tensor `{attribute}`"
            raise DataSourceError(msg)
    masks: dict[str, Any] = {split: data.get(f"{split}_mask") for split in SPLIT_NAMES}
    return SourceGraph.from_arrays(
        name,
        data.x,
        data.edge_index,
        data.y,
        masks=None if any(mask is None for mask in masks.values()) else masks,
        num_raw_edges=data.num_edges,
    )


def from_class_path(class_path: str, root: Path | None, cache: Path, options: Mapping[str, Any]) -> SourceGraph:
    """Call a PyG data-set class, or any function that returns a `Data` or a `SourceGraph`.

    A callable with a `root` parameter gets a folder of its own under `cache`, where the `raw` folders under `root` are
    linked, so that it finds files it would download and never writes under `root`.

    Args:
        class_path: Import path, such as `torch_geometric.datasets.KarateClub`.
        root: Folder with downloaded data, or None.
        cache: Writable folder.
        options: Keyword arguments of the call.

    Returns:
        The graph, named by the last part of the path.

    Raises:
        DataSourceError: The path cannot be imported, the call fails, or gives no single graph.
    """
    module, _, attribute = class_path.rpartition(".")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        msg = f"data.source {class_path}: cannot be imported ({error})"
        raise DataSourceError(msg) from error
    if not callable(factory):
        msg = f"data.source {class_path}: is neither a class nor a function"
        raise DataSourceError(msg)
    arguments = dict(options)
    try:
        if "root" in inspect.signature(factory).parameters and "root" not in arguments:
            key = sha256(repr((class_path, root and root.resolve(), sorted(options.items()))).encode()).hexdigest()[:12]
            arguments["root"] = str(_own_folder(cache / "pyg" / f"{attribute}-{key}", root))
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            made = factory(**arguments)
            if isinstance(made, Dataset):
                made = made[0] if len(made) == 1 else made
    except PageLightningError:
        raise
    except Exception as error:  # what a user's callable may raise is open
        reason = " ".join(str(error).split())[:200]
        msg = f"data.source {class_path}: failed with {type(error).__name__}: {reason}"
        raise DataSourceError(msg) from error
    if isinstance(made, SourceGraph):
        return made
    if not isinstance(made, Data):
        what = f"{len(made)} graphs" if isinstance(made, Dataset) else f"a {type(made).__name__}"
        msg = f"data.source {class_path}: gives {what}, expected one homogeneous PyG Data"
        raise DataSourceError(msg)
    return from_data(made, attribute)


def _own_folder(folder: Path, root: Path | None) -> Path:
    """Make `folder`, with a link to each `raw` folder at most three levels below `root`."""
    folder.mkdir(parents=True, exist_ok=True)
    if root is not None:
        for pattern in ("*/raw", "*/*/raw"):
            for raw in root.glob(pattern):
                link = folder / raw.relative_to(root)
                link.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileExistsError):  # linked before, or by another process at the same time
                    link.symlink_to(raw.resolve())
    return folder
