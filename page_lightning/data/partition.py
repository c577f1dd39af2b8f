"""What a partition did to a graph: sizes, kept edges, label skew and homophily."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median_low
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from page_lightning.data.source import SourceGraph

MOST_ROWS = 20
"""Clients that :meth:`PartitionSummary.table` lists one by one."""


@dataclass(frozen=True)
class PartitionSummary:
    """Figures of one partition into `K` clients.

    Attributes:
        dataset: Name of the graph.
        client_sizes: Number of nodes of each client.
        client_edges: Number of directed edges inside each client.
        kept_edges: Share of all edges that join two nodes of one client; 1 for a graph without edges.
        label_shift: Total-variation distance between each client's label distribution and that of the whole graph.
        mean_label_shift: Mean of `label_shift` over clients.
        homophily: Share of all edges that join two nodes of one class; None without edges.
        client_homophily: The same inside each client.
    """

    dataset: str
    client_sizes: tuple[int, ...]
    client_edges: tuple[int, ...]
    kept_edges: float
    label_shift: tuple[float, ...]
    mean_label_shift: float
    homophily: float | None
    client_homophily: tuple[float | None, ...]

    @property
    def num_clients(self) -> int:
        """Number of clients `K`."""
        return len(self.client_sizes)

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain values, for JSON."""
        return asdict(self)

    def table(self) -> Table:
        """The figures as a Rich table: one row a client, or their range where they are many, and one for the whole."""
        table = Table("client", "nodes", "edges", "label shift", "homophily", title=f"{self.dataset}: partition")
        columns = (self.client_sizes, self.client_edges, self.label_shift, self.client_homophily)
        if self.num_clients <= MOST_ROWS:
            for client, (nodes, edges, shift, homophily) in enumerate(zip(*columns, strict=True)):
                table.add_row(str(client), f"{nodes:,}", f"{edges:,}", f"{shift:.3f}", _ratio(homophily))
        else:
            homophilies = [value for value in self.client_homophily if value is not None]
            ranges: tuple[tuple[str, Callable[[Any], Any]], ...] = (
                ("least", min),
                ("median", median_low),
                ("most", max),
            )
            for name, pick in ranges:
                nodes, edges, shift = (pick(values) for values in columns[:3])
                homophily = pick(homophilies) if homophilies else None
                table.add_row(name, f"{nodes:,}", f"{edges:,}", f"{shift:.3f}", _ratio(homophily))
        table.add_section()
        edges_text = f"{sum(self.client_edges):,} ({self.kept_edges:.1%})"
        nodes_text = f"{sum(self.client_sizes):,}"
        name = "all" if self.num_clients <= MOST_ROWS else f"all {self.num_clients}"
        table.add_row(name, nodes_text, edges_text, f"{self.mean_label_shift:.3f}", _ratio(self.homophily))
        return table


def kept_edge_mask(edge_index: Tensor, assignment: Tensor) -> Tensor:
    """Which edges join two nodes of one client.

    Args:
        edge_index: Edges `[2, E]`.
        assignment: Client of each node `[N]`.

    Returns:
        Bool `[E]`.
    """
    client = assignment[edge_index]
    return client[0] == client[1]


def summarise(graph: SourceGraph, assignment: Tensor) -> PartitionSummary:
    """Measure a partition.

    Args:
        graph: The graph.
        assignment: Client of each node `[N]`, from 0, none empty.

    Returns:
        Its figures.
    """
    sizes = torch.bincount(assignment)
    num_clients = len(sizes)
    kept = graph.edge_index[:, kept_edge_mask(graph.edge_index, assignment)]
    edges = torch.bincount(assignment[kept[0]], minlength=num_clients)
    same_class = (graph.y[kept[0]] == graph.y[kept[1]]).double()
    same = torch.bincount(assignment[kept[0]], weights=same_class, minlength=num_clients)

    counts = torch.bincount(assignment * graph.num_classes + graph.y, minlength=num_clients * graph.num_classes)
    local = counts.view(num_clients, graph.num_classes) / sizes[:, None]
    overall = torch.bincount(graph.y, minlength=graph.num_classes) / graph.num_nodes
    shift = (local - overall).abs().sum(1) / 2

    class_of_ends = graph.y[graph.edge_index]
    return PartitionSummary(
        dataset=graph.name,
        client_sizes=tuple(sizes.tolist()),
        client_edges=tuple(edges.tolist()),
        kept_edges=kept.shape[1] / graph.num_edges if graph.num_edges else 1.0,
        label_shift=tuple(shift.tolist()),
        mean_label_shift=shift.mean().item(),
        homophily=(class_of_ends[0] == class_of_ends[1]).double().mean().item() if graph.num_edges else None,
        client_homophily=tuple(s / e if e else None for s, e in zip(same.tolist(), edges.tolist(), strict=True)),
    )


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
