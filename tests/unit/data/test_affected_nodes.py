"""The radius rule against brute force: logits before and after, with the weights frozen."""

import pytest
import torch
from small_graphs import different_models, make_backbone, small_graphs

from page_lightning.data.affected_nodes import affected_nodes
from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import RequestOptions
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.stack import ClientStack

ARCHITECTURES = ["GCN", "GAT", "GraphSAGE", "GIN", "SGC", "SGC-openfgl", "MLP"]


def changed(backbone, graphs, retained):
    """Rows whose logits differ, removed ones included."""
    stack = ClientStack(backbone, graphs.num_clients)
    stack.load(different_models(backbone, graphs.num_clients))
    with torch.no_grad():
        old = stack(graphs.flow(backbone.num_hops, torch.float64))[1]
        new = torch.full_like(old, torch.inf)
        place = torch.searchsorted(graphs.node_id, retained.node_id)
        new[place] = stack(retained.flow(backbone.num_hops, torch.float64))[1]
    return ((old - new).abs() > 1e-12).any(1)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", ["node", "edge", "feature"])
def test_every_change_is_inside_and_a_smaller_radius_misses_some(architecture, kind):
    inside, missed = True, False
    for seed in range(6):
        graphs = small_graphs((40, 30), seed=seed)
        request = RequestOptions(kind, count=1, clients=[0], pool="all", seed=seed).build(graphs, "csbm")
        backbone = make_backbone(architecture)
        found = changed(backbone, graphs, apply_request(graphs, request))
        options = {"degree_normalized": backbone.degree_normalized}
        inside &= not bool((found & ~affected_nodes(graphs, request, backbone.num_hops, **options)).any())
        if backbone.num_hops:
            missed |= bool((found & ~affected_nodes(graphs, request, backbone.num_hops - 1, **options)).any())
    assert inside
    assert missed or architecture == "MLP"


def test_a_path_shows_the_radius():
    """0 - 1 - 2 - ... - 9: an edge lost at the end reaches L or L - 1 hops."""
    graphs = path(10)
    request = RequestOptions("edge", count=1, pool="all", seed=0).build(graphs, "path")
    (ends,) = next(iter(request.edges.values()))
    hops = torch.minimum((torch.arange(10) - ends[0]).abs(), (torch.arange(10) - ends[1]).abs())
    for normalized, reach in ((True, 2), (False, 1)):
        found = affected_nodes(graphs, request, 2, degree_normalized=normalized)
        assert torch.equal(found, hops <= reach)


def path(count):
    chain = torch.stack([torch.arange(count - 1), torch.arange(1, count)])
    masks = {name: torch.ones(count, dtype=torch.bool) for name in ("train", "val", "test")}
    return ClientGraphs.from_assignment(
        torch.rand(count, 3), torch.cat([chain, chain.flip(0)], 1), torch.arange(count) % 2,
        torch.zeros(count, dtype=torch.int64), masks, 2, 1,
    )  # fmt: skip
