"""One source graph, divided among clients and split into training, validation and test nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from scipy import sparse
from torch import Tensor
from torch.utils.data import DataLoader
from typing_extensions import override

from page_lightning.configuration import build_class, class_config
from page_lightning.csr import csr_from_scipy, csr_to_scipy
from page_lightning.data.apply_request import apply_request
from page_lightning.data.partition import PartitionSummary, summarise
from page_lightning.data.partitioners import Louvain, Partitioner
from page_lightning.data.poison import Poison
from page_lightning.data.requests import UnlearningRequest, read_request
from page_lightning.data.source import SourceGraph
from page_lightning.data.sources import load_source
from page_lightning.data.splits import DEFAULT_RATIOS, FALLBACK_RATIOS, Masks, official_masks, split_nodes
from page_lightning.errors import ConfigurationError
from page_lightning.federation.graphs import ClientGraphs

ROOT_VARIABLE = "PAGE_LIGHTNING_DATA"
CACHE_VARIABLE = "PAGE_LIGHTNING_CACHE"


class FederatedGraphDataModule(LightningDataModule):
    """The clients' graphs.

    A source graph is loaded, its nodes are assigned to clients, and each client's nodes are split per class. Edges
    between clients are dropped. The loaders give one batch: all clients as one block-diagonal graph.

    Attributes:
        poison_request: what ``poison`` did, as the request that undoes it; known after :meth:`setup`.

    Args:
        source: a data set by name (Cora, CiteSeer, PubMed, Photo, Computers, CS, Physics, Chameleon, Squirrel, Actor,
            Minesweeper, Tolokers, Roman-empire, Amazon-ratings, Questions, ogbn-arxiv; csbm and arxiv-sized are
            generated), a ``.pt`` or ``.npz`` file, or the class path of a PyG data set.
        num_clients: number of clients ``K``.
        partitioner: how nodes are assigned to clients.
        ratios: shares of training, validation and test nodes; by default those of OpenFGL for the data set.
        split: ``random`` draws them per client and class; ``official`` takes the data set's own masks.
        split_index: which official split, where a data set has several.
        min_train_per_class: training nodes that every class of a client gets at least, where it has as many.
        normalize_features: scale every feature row to sum to one (OpenFGL uses raw features).
        root: folder that holds the data sets' files, read only; by default the variable PAGE_LIGHTNING_DATA.
        cache: folder for downloads; by default the variable PAGE_LIGHTNING_CACHE, or ~/.cache/page_lightning.
        source_args: options of a generated graph or of a class-path source.
        seed: of generated graphs, partition and split.
        poison: spoils the training data: EdgeAttack or LabelShift. ``request.kind poison`` forgets exactly that.
        forgotten: request files whose data are left out, in the order in which they were carried out.
    """

    def __init__(
        self,
        source: str = "csbm",
        num_clients: int = 5,
        partitioner: Partitioner = Louvain(),  # noqa: B008 - options only
        ratios: tuple[float, float, float] | None = None,
        split: Literal["random", "official"] = "random",
        split_index: int = 0,
        min_train_per_class: int = 0,
        normalize_features: bool = False,
        root: str | None = None,
        cache: str | None = None,
        source_args: dict[str, Any] | None = None,
        seed: int = 0,
        poison: Poison | None = None,
        forgotten: list[str] | None = None,
    ) -> None:
        super().__init__()
        self.poison: Poison | None = build_class(poison) if isinstance(poison, dict) else poison
        self.forgotten = list(forgotten or [])
        self.partitioner: Partitioner = build_class(partitioner) if isinstance(partitioner, dict) else partitioner
        self.source_name, self.num_clients, self.ratios = source, num_clients, ratios
        self.split, self.split_index, self.min_train_per_class = split, split_index, min_train_per_class
        self.normalize_features, self.source_args, self.seed = normalize_features, dict(source_args or {}), seed
        folder = root or os.environ.get(ROOT_VARIABLE)
        self.root = Path(folder).expanduser() if folder else None
        home = cache or os.environ.get(CACHE_VARIABLE) or "~/.cache/page_lightning"
        self.cache = Path(home).expanduser()
        self.save_hyperparameters(
            {
                "source": source,
                "num_clients": num_clients,
                "partitioner": class_config(self.partitioner),
                "ratios": None if ratios is None else list(ratios),
                "split": split,
                "split_index": split_index,
                "min_train_per_class": min_train_per_class,
                "normalize_features": normalize_features,
                "source_args": self.source_args,
                "seed": seed,
                "poison": None if self.poison is None else class_config(self.poison),
            },
            logger=False,  # the model has a seed of its own
        )
        self.poison_request: UnlearningRequest | None = None
        self._federated: tuple[SourceGraph, Tensor, Masks, ClientGraphs] | None = None
        self._on_device: dict[tuple[str, torch.device], ClientGraphs] = {}

    @override
    def setup(self, stage: str | None = None) -> None:
        if self._federated is not None:
            return
        source = load_source(self.source_name, self.root, self.cache, self.seed, self.source_args)
        if self.normalize_features:
            source = replace(source, x=_rows_summing_to_one(source.x))
        assignment = self.partitioner.partition(source, self.num_clients, self.seed)
        if self.split == "official":
            masks = official_masks(source, self.split_index)
        else:
            ratios = self.ratios or DEFAULT_RATIOS.get(source.name, FALLBACK_RATIOS)
            masks = split_nodes(source.y, assignment, ratios, self.seed, self.min_train_per_class)
        graphs = ClientGraphs.from_assignment(
            source.x, source.edge_index, source.y, assignment, masks, source.num_classes, self.num_clients
        )
        if self.poison is not None:
            graphs, self.poison_request = self.poison.apply(graphs, source.name)
        for path in self.forgotten:
            request = read_request(Path(path), graphs, source.name)
            graphs = apply_request(graphs, request)
        self._federated = source, assignment, masks, graphs

    def for_checkpoint(self, checkpoint: Mapping[str, Any], path: Path) -> FederatedGraphDataModule:
        """The data that a checkpoint was made with, read from this module's folders.

        Args:
            checkpoint: its content.
            path: its file; the requests behind it lie in the same folder.
        """
        hyperparameters = checkpoint["datamodule_hyper_parameters"]
        requests = [str(path.parent / name) for name in checkpoint["federation"]["requests"]]
        root = None if self.root is None else str(self.root)
        return FederatedGraphDataModule(**hyperparameters, root=root, cache=str(self.cache), forgotten=requests)

    def forget(self, request_paths: Sequence[str], retained: ClientGraphs) -> None:
        """Leave out the data of a request from now on.

        Args:
            request_paths: files of all requests carried out so far, for whoever loads these data again.
            retained: the graphs after the last.
        """
        source, assignment, masks, _ = self._ready()
        self.forgotten = list(request_paths)
        self._federated = source, assignment, masks, retained
        self._on_device.clear()

    def _ready(self) -> tuple[SourceGraph, Tensor, Masks, ClientGraphs]:
        if self._federated is None:
            message = "the data are not loaded yet: call setup() first"
            raise ConfigurationError(message)
        return self._federated

    @property
    def source(self) -> SourceGraph:
        """The graph before division."""
        return self._ready()[0]

    @property
    def assignment(self) -> Tensor:
        """The client of each source node, int64 ``[N]``."""
        return self._ready()[1]

    @property
    def graphs(self) -> ClientGraphs:
        """All clients' graphs."""
        return self._ready()[3]

    def summary(self) -> PartitionSummary:
        """Sizes, kept edges, label shift and homophily of the partition."""
        return summarise(self.source, self.assignment)

    def whole_graph(self, device: torch.device | str = "cpu") -> ClientGraphs:
        """The source graph with the edges between clients, as one client in source order.

        Forgotten nodes stay as rows without edges, features or a place in any split.
        """
        source, assignment, masks, graphs = self._ready()
        key = ("whole", torch.device(device))
        if key not in self._on_device:
            there = torch.zeros(source.num_nodes, dtype=torch.bool)
            there[graphs.node_id] = True
            between = source.edge_index[:, (assignment[source.edge_index[0]] != assignment[source.edge_index[1]])]
            between = between[:, there[between].all(0)]
            edges = torch.cat([graphs.node_id[graphs.edge_index], between], 1)
            self._on_device[key] = ClientGraphs.from_assignment(
                _scattered_rows(graphs.x, graphs.node_id, source.num_nodes),
                edges,
                source.y,
                torch.zeros_like(assignment),
                {name: mask & there for name, mask in masks.items()},
                source.num_classes,
                1,
            ).to(device)
        return self._on_device[key]

    @override
    def transfer_batch_to_device(self, batch: ClientGraphs, device: torch.device, dataloader_idx: int) -> ClientGraphs:
        key = ("clients", device)
        if key not in self._on_device:
            self._on_device[key] = batch.to(device)
        return self._on_device[key]

    @override
    def train_dataloader(self) -> DataLoader[ClientGraphs]:
        return DataLoader([self.graphs], batch_size=None, collate_fn=_as_is)  # type: ignore[arg-type]

    @override
    def val_dataloader(self) -> DataLoader[ClientGraphs]:
        return self.train_dataloader()

    @override
    def test_dataloader(self) -> DataLoader[ClientGraphs]:
        return self.train_dataloader()


def _as_is(graphs: ClientGraphs) -> ClientGraphs:
    return graphs


def _scattered_rows(x: Tensor, place: Tensor, num_rows: int) -> Tensor:
    """Rows of ``x`` put at ``place`` among ``num_rows`` rows, zeros elsewhere."""
    if x.layout != torch.sparse_csr:
        return x.new_zeros(num_rows, x.shape[1]).index_copy(0, place, x)
    rows = place.numpy()
    order = sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, np.arange(len(rows)))), (num_rows, len(rows)))
    return csr_from_scipy(sparse.csr_matrix(order @ csr_to_scipy(x)))


def _rows_summing_to_one(x: Tensor) -> Tensor:
    if x.layout != torch.sparse_csr:
        return x / x.sum(1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    matrix = csr_to_scipy(x)
    total = np.maximum(np.asarray(matrix.sum(1)).ravel(), np.finfo(np.float32).tiny)
    return csr_from_scipy(sparse.csr_matrix(sparse.diags(1 / total) @ matrix).astype(np.float32))
