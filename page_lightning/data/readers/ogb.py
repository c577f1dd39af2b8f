"""ogbn-arxiv through `ogb`, guarded against its questions on stdin and its unsafe load."""

import warnings
import zipfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from page_lightning.data.readers.pyg import SAFE_GLOBALS
from page_lightning.data.readers.reading import reading
from page_lightning.data.source import SourceGraph
from page_lightning.errors import DataSourceError

RELEASE_FILE = "RELEASE_v1.txt"


def read_ogb(folder: Path, name: str, work: Path) -> SourceGraph:
    """Read a data set in ogb's layout with its official split; nothing is written under `folder`.

    Args:
        folder: Folder with `RELEASE_v1.txt`, `raw/` and `split/`.
        name: ogb's name, such as "ogbn-arxiv".
        work: Writable folder for ogb's processed copy.

    Returns:
        The graph; its published edge count is that of the directed edges.

    Raises:
        DataSourceError: The release file is missing (ogb would ask whether to delete the folder), or a file is damaged.
    """
    if not (folder / RELEASE_FILE).is_file():
        msg = f"{folder}: has no {RELEASE_FILE}, so it is not a complete download of {name}"
        raise DataSourceError(msg)
    linked = work / name.replace("-", "_")
    linked.mkdir(parents=True, exist_ok=True)
    for part in folder.iterdir():
        if part.name != "processed":
            with suppress(FileExistsError):  # linked before, or by another process at the same time
                (linked / part.name).symlink_to(part.resolve())
    from ogb.nodeproppred import PygNodePropPredDataset  # 4 seconds, so only where it is needed

    output = StringIO()
    with (
        reading(folder),
        warnings.catch_warnings(),
        redirect_stdout(output),
        redirect_stderr(output),
        torch.serialization.safe_globals(SAFE_GLOBALS),
    ):
        warnings.simplefilter("ignore")
        dataset = PygNodePropPredDataset(name, root=str(work))
        data, split = dataset[0], dataset.get_idx_split()
        masks = {ours: _mask(split[theirs], data.num_nodes) for ours, theirs in _SPLITS.items()}
        num_classes = int(dataset.num_classes)
    return SourceGraph.from_arrays(
        name, data.x, data.edge_index, data.y, num_classes=num_classes, masks=masks, num_raw_edges=data.num_edges
    )


_SPLITS = {"train": "train", "val": "valid", "test": "test"}


def _mask(index: torch.Tensor, num_nodes: int) -> npt.NDArray[np.bool_]:
    mask = np.zeros(num_nodes, bool)
    mask[index.numpy()] = True
    return mask


def unpack_ogb(archive: Path, folder: Path) -> None:
    """Unpack a downloaded archive, whose one top folder becomes `folder`, and remove it.

    Args:
        archive: The zip file, beside `folder`.
        folder: Where its content goes.

    Raises:
        DataSourceError: The archive is damaged.
    """
    with reading(archive), zipfile.ZipFile(archive) as file:
        top = file.namelist()[0].split("/")[0]
        file.extractall(archive.parent)
    (archive.parent / top).rename(folder)
    archive.unlink()
