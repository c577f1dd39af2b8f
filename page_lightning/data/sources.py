"""From the name of a data set, a file or a class to a graph."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from page_lightning.data.arxiv_sized import arxiv_sized
from page_lightning.data.catalogue import CATALOGUE, OGBN_ARXIV_STATISTICS, OGBN_ARXIV_URL, Statistics
from page_lightning.data.download import download
from page_lightning.data.generated import csbm, minesweeper
from page_lightning.data.readers.npz import read_npz
from page_lightning.data.readers.ogb import RELEASE_FILE, read_ogb, unpack_ogb
from page_lightning.data.readers.pyg import from_class_path, read_pt
from page_lightning.data.source import SourceGraph
from page_lightning.errors import DataSourceError

GENERATED = ("csbm", "arxiv-sized")
OGB = "ogbn-arxiv"


def list_sources() -> tuple[str, ...]:
    """Canonical names of the data sets `load_source` knows."""
    return (*CATALOGUE, OGB, *GENERATED)


def load_source(
    source: str, root: Path | None, cache: Path, seed: int = 0, options: Mapping[str, Any] | None = None
) -> SourceGraph:
    """Load a graph and check it.

    Files are looked for below `root`, then below `cache`, and else downloaded to `cache`; `root` is only read.

    Args:
        source: A name from `list_sources` in any case; a `.npz` or `.pt` file, absolute or relative to the working
            folder or to `root`; or the import path of a PyG data-set class or of a function that returns a PyG `Data`.
        root: Folder with downloaded data in PyG's layout, or None.
        cache: Writable folder for downloads.
        seed: Seed of generated graphs.
        options: Keyword arguments of a generated graph ("csbm", "arxiv-sized") or of the class or function.

    Returns:
        The graph.

    Raises:
        DataSourceError: The source is unknown, missing, damaged, or not what it should be.
    """
    options = dict(options or {})
    names = {name.lower(): name for name in list_sources()}
    name = names.get(source.lower())
    if options and (name not in GENERATED if name else source.endswith((".npz", ".pt"))):
        msg = f"data.source_args: {source} takes no arguments, got {', '.join(options)}"
        raise DataSourceError(msg)
    if root is not None and not root.is_dir():
        msg = f"data.root {root}: no such folder"
        raise DataSourceError(msg)
    if seed < 0:
        msg = f"data.seed {seed} must not be negative"
        raise DataSourceError(msg)
    if name in GENERATED:
        return _generate(name, root, seed, options)
    if name == OGB:
        return _load_ogb(root, cache)
    if name:
        return _load_named(name, root, cache)
    if source.endswith((".npz", ".pt")):
        path = _file(source, root)
        return read_npz(path, path.stem) if path.suffix == ".npz" else read_pt(path, path.stem)
    if "." in source:
        return from_class_path(source, root, cache, options)
    msg = f"data.source {source!r} is unknown; choose {', '.join(list_sources())}, a .npz or .pt file, or a class path"
    raise DataSourceError(msg)


def _generate(name: str, root: Path | None, seed: int, options: dict[str, Any]) -> SourceGraph:
    try:
        if name == "csbm":
            return csbm(seed=seed, **options)
        labels = None if root is None else root / "arxiv_labels"
        return arxiv_sized(labels if labels and labels.is_dir() else None, seed=seed, **options)
    except (TypeError, ValueError) as error:
        msg = f"data.source {name}: {error}"
        raise DataSourceError(msg) from error


def _load_named(name: str, root: Path | None, cache: Path) -> SourceGraph:
    for publication in CATALOGUE[name]:
        if root is not None and any((root / publication.folder / file).exists() for file in publication.urls):
            return _check(name, publication.read(root / publication.folder), publication.statistics)
    if name == "Minesweeper":
        return minesweeper()
    publication = CATALOGUE[name][0]
    folder = cache / publication.folder
    for file, url in publication.urls.items():
        if not (folder / file).exists():
            try:
                download(url, folder / file)
            except OSError as error:
                raise _not_there(name, f"{publication.folder}/{file}", url, error) from error
    return _check(name, publication.read(folder), publication.statistics)


def _load_ogb(root: Path | None, cache: Path) -> SourceGraph:
    folder = next((base / "ogbn_arxiv" for base in filter(None, (root, cache)) if (base / "ogbn_arxiv").is_dir()), None)
    if folder is None:
        folder, archive = cache / "ogbn_arxiv", cache / "arxiv.zip"
        try:
            download(OGBN_ARXIV_URL, archive)
        except OSError as error:
            raise _not_there(OGB, f"ogbn_arxiv/{RELEASE_FILE}", OGBN_ARXIV_URL, error) from error
        unpack_ogb(archive, folder)
    key = sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    return _check(OGB, read_ogb(folder, OGB, cache / "ogb" / key), OGBN_ARXIV_STATISTICS)


def _not_there(name: str, file: str, url: str, error: OSError) -> DataSourceError:
    reason = getattr(error, "reason", error)
    return DataSourceError(f"data.source {name}: no {file} under data.root, and downloading {url} failed ({reason})")


def _check(name: str, graph: SourceGraph, expected: Statistics) -> SourceGraph:
    found = Statistics.of(graph)
    if found != expected:
        msg = f"data.source {name}: the files hold {found}, but the data set has {expected}"
        raise DataSourceError(msg)
    return graph


def _file(source: str, root: Path | None) -> Path:
    candidates = [Path(source).expanduser(), *([root / source] if root is not None else [])]
    for path in candidates:
        if path.is_file():
            return path
    msg = f"data.source {source}: no such file, neither from the working folder nor under data.root"
    raise DataSourceError(msg)
