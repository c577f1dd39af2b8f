import json
import runpy
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from page_lightning.data.partition import summarise
from page_lightning.data.source import SourceGraph

BENCHMARK = Path(__file__).resolve().parents[3] / "experiments/benchmarks/partition.py"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(1, 4))
def test_summary_equals_networkx(seed, n, num_clients):
    rng = np.random.default_rng(seed)
    reference = nx.gnm_random_graph(n, rng.integers(0, 2 * n), seed=seed)
    y = rng.integers(0, 3, n)
    num_clients = min(num_clients, n)
    assignment = rng.permutation(np.arange(n) % num_clients)
    edges = np.array(reference.edges, int).reshape(-1, 2).T
    graph = SourceGraph.from_arrays("g", np.ones((n, 1)), edges, y, num_classes=3)
    found = summarise(graph, torch.from_numpy(assignment))

    shifts, kept = [], 0
    for client in range(num_clients):
        nodes = np.flatnonzero(assignment == client)
        inside = reference.subgraph(nodes.tolist()).edges
        kept += len(inside)
        assert found.client_sizes[client] == len(nodes)
        assert found.client_edges[client] == 2 * len(inside)
        same = [y[a] == y[b] for a, b in inside]
        assert found.client_homophily[client] == (pytest.approx(np.mean(same)) if same else None)
        shifts.append(0.5 * sum(abs((y[nodes] == c).mean() - (y == c).mean()) for c in range(3)))
    total = reference.number_of_edges()
    assert found.kept_edges == (pytest.approx(kept / total) if total else 1.0)
    assert found.homophily == (pytest.approx(np.mean([y[a] == y[b] for a, b in reference.edges])) if total else None)
    assert found.label_shift == pytest.approx(shifts, abs=1e-6)
    assert found.mean_label_shift == pytest.approx(np.mean(shifts), abs=1e-6)
    assert json.loads(json.dumps(found.to_dict()))["client_sizes"] == list(found.client_sizes)


def test_table_prints_one_row_a_client_and_the_total():
    graph = SourceGraph.from_arrays("tiny", np.ones((4, 1)), np.array([[0, 2, 1], [1, 3, 2]]), np.array([0, 0, 1, 1]))
    console = Console(width=100, record=True)
    console.print(summarise(graph, torch.tensor([0, 0, 1, 1])).table())
    text = console.export_text()
    assert "tiny: partition" in text
    assert "4 (66.7%)" in text
    assert text.count("0.500") == 3  # both clients' label shift and its mean


@pytest.mark.parametrize(("dataset", "clients", "limit"), [("Photo", "10", 2.0), ("Tolokers", "15", 3.0)])
def test_benchmark_stays_within_its_cpu_budget(dataset, clients, limit, data_root, tmp_path, monkeypatch):
    out = tmp_path / "out.json"
    arguments = ["--dataset", dataset, "--clients", clients, "--partitioner", "Louvain"]
    monkeypatch.setattr(sys, "argv", ["partition.py", *arguments, "--root", str(data_root), "--json", str(out)])
    runpy.run_path(str(BENCHMARK), run_name="__main__")
    figures = json.loads(out.read_text())
    assert figures["cpu_s"] < limit
    assert len(figures["sizes"]) == int(clients)
    assert 0 < figures["kept_edges"] < 1


def test_benchmark_cuts_out_the_induced_subgraphs():
    client_edges = runpy.run_path(str(BENCHMARK))["client_edges"]
    rng = np.random.default_rng(3)
    graph = SourceGraph.from_arrays("g", np.ones((50, 1)), rng.integers(0, 50, (2, 200)), np.zeros(50, int))
    assignment = torch.from_numpy(rng.permutation(np.arange(50) % 4))
    for client, edges in enumerate(client_edges(graph.edge_index, assignment)):
        nodes = (assignment == client).nonzero().flatten()
        expected = graph.adjacency()[nodes.numpy()][:, nodes.numpy()].tocoo()
        assert sorted(edges.T.tolist()) == sorted(map(list, zip(expected.row, expected.col, strict=True)))
