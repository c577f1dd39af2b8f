import numpy as np
import pytest
import torch

from page_lightning.data.arxiv_sized import arxiv_sized
from page_lightning.data.generated import CORA_CLASS_SIZES, csbm, minesweeper
from page_lightning.data.sources import load_source
from page_lightning.errors import DataSourceError


def homophily(graph):
    return (graph.y[graph.edge_index[0]] == graph.y[graph.edge_index[1]]).float().mean().item()


def test_minesweeper_equals_the_published_file(load):
    made, published = minesweeper(), load("Minesweeper")
    assert made.digest() == published.digest()
    assert made.num_raw_edges == published.num_raw_edges == 78804
    for split, masks in published.masks.items():
        assert torch.equal(made.masks[split], masks)


def test_minesweeper_needs_no_file(tmp_path):
    assert load_source("minesweeper", None, tmp_path).num_nodes == 10_000
    assert not any(tmp_path.iterdir())


def test_csbm_has_the_sizes_asked_for():
    graph = csbm(seed=3)
    assert torch.bincount(graph.y).tolist() == list(CORA_CLASS_SIZES)
    assert graph.num_edges == 2 * 5278
    assert graph.num_features == 1433
    assert homophily(graph) == pytest.approx(0.72, abs=0.02)
    assert graph.x.values().numel() / 2708 == pytest.approx(18, abs=0.5)
    assert graph.digest() == csbm(seed=3).digest() != csbm(seed=4).digest()


def test_csbm_features_tell_classes_apart_only_with_a_signal():
    def centroid_gap(signal):
        graph = csbm(class_sizes=(300, 300), num_edges=900, num_words=200, word_signal=signal)
        x = graph.x.to_dense()
        return (x[graph.y == 0].mean(0) - x[graph.y == 1].mean(0)).norm().item()

    assert centroid_gap(0.8) > 2 * centroid_gap(0.0)


@pytest.mark.parametrize("options", [{"num_edges": 10**7}, {"homophily": 1.0}, {"word_signal": 2.0}, {"unknown": 1}])
def test_impossible_csbm_is_refused(options, tmp_path):
    with pytest.raises(DataSourceError, match=r"^data.source csbm: "):
        load_source("csbm", None, tmp_path, options=options)


def test_arxiv_sized_keeps_the_proportions_of_the_real_graph():
    graph = arxiv_sized(num_nodes=5000, seed=1)
    assert graph.num_raw_edges == round(1_166_243 * 5000 / 169_343)
    assert (graph.num_features, graph.num_classes) == (128, 40)
    assert homophily(graph) == pytest.approx(0.65, abs=0.06)
    assert graph.x.std().item() == pytest.approx(0.25, abs=1e-3)
    share = [graph.masks[split].float().mean().item() for split in ("train", "val", "test")]
    assert share == pytest.approx([0.537, 0.176, 0.287], abs=0.03)
    assert graph.digest() == arxiv_sized(num_nodes=5000, seed=1).digest()


def test_arxiv_sized_uses_the_real_labels(data_root, tmp_path):
    graph = load_source("arxiv-sized", data_root, tmp_path, options={"num_nodes": 3000})
    sampled = load_source("arxiv-sized", None, tmp_path, options={"num_nodes": 3000})
    assert graph.num_nodes == 3000
    assert graph.digest() != sampled.digest()


@pytest.mark.full
def test_arxiv_sized_at_full_size_has_the_official_split(data_root, tmp_path):
    graph = load_source("arxiv-sized", data_root, tmp_path)
    assert (graph.num_nodes, graph.num_raw_edges) == (169_343, 1_166_243)
    assert [int(graph.masks[s].sum()) for s in ("train", "val", "test")] == [90_941, 29_799, 48_603]
    assert homophily(graph) == pytest.approx(0.656, abs=0.01)


@pytest.mark.parametrize("num_nodes", [0, 99, 169_344])
def test_arxiv_sized_refuses_other_sizes(num_nodes):
    with pytest.raises(DataSourceError, match="num_nodes"):
        arxiv_sized(num_nodes=num_nodes)


def test_arxiv_sized_names_a_damaged_label_file(tmp_path):
    (tmp_path / "node-label.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(DataSourceError, match=r"node-label.csv.gz: truncated"):
        arxiv_sized(tmp_path, num_nodes=200)


def test_the_global_random_state_is_left_alone():
    np.random.seed(0)
    torch.manual_seed(0)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    csbm()
    minesweeper()
    assert (np.random.get_state()[1] == before[0]).all()
    assert torch.equal(torch.get_rng_state(), before[1])
