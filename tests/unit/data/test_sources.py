import gzip
import pickle
import shutil

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.datasets import Actor, Amazon, Coauthor, HeterophilousGraphDataset, Planetoid, WikipediaNetwork
from torch_geometric.utils import coalesce, remove_self_loops, to_undirected

from page_lightning.data import sources
from page_lightning.data.catalogue import CATALOGUE
from page_lightning.data.download import download
from page_lightning.data.readers.ogb import read_ogb, unpack_ogb
from page_lightning.data.sources import list_sources, load_source
from page_lightning.data.splits import DEFAULT_RATIOS
from page_lightning.errors import DataSourceError

PYG = {
    "Cora": lambda root: Planetoid(root, "Cora"),
    "CiteSeer": lambda root: Planetoid(root, "CiteSeer"),
    "Chameleon": lambda root: WikipediaNetwork(root, "chameleon"),
    "Actor": lambda root: Actor(f"{root}/actor"),
    "Tolokers": lambda root: HeterophilousGraphDataset(root, "tolokers"),
    "Photo": lambda root: Amazon(root, "Photo"),
    "PubMed": lambda root: Planetoid(root, "PubMed"),
    "Computers": lambda root: Amazon(root, "Computers"),
    "CS": lambda root: Coauthor(root, "CS"),
    "Physics": lambda root: Coauthor(root, "Physics"),
}
SLOW = {"PubMed", "Computers", "CS", "Physics"}
NAMES = [pytest.param(name, marks=pytest.mark.full) if name in SLOW else name for name in PYG]


@pytest.mark.parametrize("name", NAMES)
def test_equals_what_pyg_loads(name, load, data_root, tmp_path):
    for raw in (*data_root.glob("*/raw"), *data_root.glob("*/*/raw")):
        link = tmp_path / raw.relative_to(data_root)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(raw)
    data, graph = PYG[name](str(tmp_path))[0], load(name)
    assert graph.name == name
    assert torch.equal(graph.x.to_dense(), data.x)
    assert torch.equal(graph.y, data.y)
    assert graph.num_raw_edges == data.num_edges
    expected = coalesce(to_undirected(remove_self_loops(data.edge_index)[0]))
    assert torch.equal(graph.edge_index, expected)
    assert graph.num_classes == int(data.y.max()) + 1
    assert (graph.masks is None) == ("train_mask" not in data)
    for split, mask in (graph.masks or {}).items():
        assert torch.equal(mask, data[f"{split}_mask"].bool())


def test_squirrel_is_read_from_the_heterophilous_graphs_file(load):
    graph = load("Squirrel")
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (5201, 2 * 198_353, 2089, 5)


def test_names_are_found_in_any_case(data_root, tmp_path):
    assert load_source("cORA", data_root, tmp_path).name == "Cora"
    assert set(list_sources()) == set(DEFAULT_RATIOS)


def test_nothing_is_printed_and_the_root_is_only_read(data_root, tmp_path, capfd):
    root = tmp_path / "root"
    shutil.copytree(data_root / "Cora", root / "Cora")
    before = sorted(root.rglob("*"))
    load_source("Cora", root, tmp_path / "cache")
    load_source("torch_geometric.datasets.Planetoid", root, tmp_path / "cache", options={"name": "Cora"})
    assert sorted(root.rglob("*")) == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("Cora", "Cora/raw/ind.cora.allx"),
        ("Cora", "Cora/raw/ind.cora.test.index"),
        ("Photo", "Photo/raw/amazon_electronics_photo.npz"),
        ("Chameleon", "chameleon/geom_gcn/raw/out1_node_feature_label.txt"),
        ("Chameleon", "chameleon/geom_gcn/raw/chameleon_split_0.6_0.2_3.npz"),
        ("Actor", "actor/raw/out1_graph_edges.txt"),
        ("Minesweeper", "minesweeper/raw/minesweeper.npz"),
    ],
)
@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_a_damaged_file_is_named(name, file, damage, data_root, tmp_path):
    folder = (data_root / file).parent
    shutil.copytree(folder, tmp_path / folder.relative_to(data_root))
    path = tmp_path / file
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"\x00garbage\tx\n" * 9)
    with pytest.raises(DataSourceError) as caught:
        load_source(name, tmp_path, tmp_path / "cache")
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message or f"data.source {name}: the files hold" in message or "ind.cora.*" in message


def test_wrong_statistics_are_refused(tmp_path):
    (tmp_path / "Photo/raw").mkdir(parents=True)
    x = np.ones((3, 2))
    np.savez(tmp_path / "Photo/raw/amazon_electronics_photo.npz", x=x, edge_index=[[0], [1]], y=[0, 1, 0])
    with pytest.raises(DataSourceError, match=r"Photo: the files hold .*nodes=3.* but the data set has .*nodes=7650"):
        load_source("Photo", tmp_path, tmp_path)


def test_a_planetoid_file_cannot_run_code(tmp_path):
    class Attack:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    (tmp_path / "Cora/raw").mkdir(parents=True)
    (tmp_path / "Cora/raw/ind.cora.x").write_bytes(pickle.dumps(Attack()))
    with pytest.raises(DataSourceError, match=r"ind.cora.x: .*open is not allowed"):
        load_source("Cora", tmp_path, tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name", [name for name in list_sources() if name not in {"csbm", "arxiv-sized", "Minesweeper"}]
)
def test_missing_and_no_network(name, tmp_path, monkeypatch):
    def refuse(url, path):
        raise OSError(f"no route to {url}")

    monkeypatch.setattr(sources, "download", refuse)
    with pytest.raises(DataSourceError) as caught:
        load_source(name, None, tmp_path)
    folder = CATALOGUE[name][0].folder if name in CATALOGUE else "ogbn_arxiv"
    assert str(caught.value).startswith(f"data.source {name}: no {folder}/")
    assert "under data.root, and downloading http" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_downloaded_files_are_kept_and_used(data_root, tmp_path, monkeypatch):
    fetched = []

    def copy(url, path):
        fetched.append(url)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(data_root / path.relative_to(tmp_path), path)

    monkeypatch.setattr(sources, "download", copy)
    assert load_source("Cora", None, tmp_path).digest() == load_source("Cora", data_root, tmp_path).digest()
    load_source("Cora", None, tmp_path)
    assert len(fetched) == 8


def test_download_leaves_no_partial_file(tmp_path):
    (tmp_path / "there").write_bytes(b"data")
    download((tmp_path / "there").as_uri(), tmp_path / "new/file")
    assert (tmp_path / "new/file").read_bytes() == b"data"
    with pytest.raises(OSError, match="missing"):
        download((tmp_path / "missing").as_uri(), tmp_path / "none/file")
    assert not any((tmp_path / "none").iterdir())


def little_data():
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 3]])
    return Data(x=torch.randn(4, 3), edge_index=edge_index, y=torch.tensor([0, 1, 1, 0]))


def test_pt_files(tmp_path):
    data = little_data()
    torch.save(data, tmp_path / "data.pt")
    torch.save({"x": data.x, "edge_index": data.edge_index, "y": data.y}, tmp_path / "dict.pt")
    one = load_source(str(tmp_path / "data.pt"), None, tmp_path)
    other = load_source("dict.pt", tmp_path, tmp_path)
    assert one.digest() == other.digest()
    assert (one.name, one.num_edges, one.num_raw_edges) == ("data", 6, 4)


def test_npz_file_with_plain_keys_and_masks(tmp_path):
    data = little_data()
    masks = {f"{split}_mask": np.arange(4) == i for i, split in enumerate(("train", "val", "test"))}
    np.savez(tmp_path / "g.npz", x=data.x, edge_index=data.edge_index, y=data.y, **masks)
    graph = load_source(str(tmp_path / "g.npz"), None, tmp_path)
    assert torch.equal(graph.x, data.x)
    assert graph.masks["val"].tolist() == [False, True, False, False]


def test_a_pt_file_cannot_run_code(tmp_path):
    torch.save({"x": pytest.raises}, tmp_path / "bad.pt")
    with pytest.raises(DataSourceError, match=r"bad.pt: truncated or not in the expected format"):
        load_source(str(tmp_path / "bad.pt"), None, tmp_path)


def _pt(path, content):
    torch.save(content, path)


@pytest.mark.parametrize(
    ("file", "write", "message"),
    [
        ("g.npz", lambda p: p.write_bytes(b"PK\x03\x04 cut"), "g.npz: truncated"),
        ("g.npz", lambda p: np.savez(p, a=1), "g.npz: holds none of the known sets of keys.* it has a$"),
        ("g.pt", lambda p: p.write_bytes(b"junk"), "g.pt: truncated"),
        ("g.pt", lambda p: _pt(p, [1]), "g.pt: holds a list"),
        ("g.pt", lambda p: _pt(p, {"x": torch.ones(2, 2)}), "g: the graph has no tensor `edge_index`"),
        ("g.pt", lambda p: None, "g.pt: no such file"),
    ],
)
def test_bad_files(file, write, message, tmp_path):
    write(tmp_path / file)
    with pytest.raises(DataSourceError, match=message) as caught:
        load_source(str(tmp_path / file), None, tmp_path)
    assert "\n" not in str(caught.value)


def test_class_path_of_a_pyg_data_set(tmp_path):
    graph = load_source("torch_geometric.datasets.KarateClub", None, tmp_path)
    assert (graph.name, graph.num_nodes, graph.num_edges, graph.num_classes) == ("KarateClub", 34, 156, 4)


def two_graphs():
    return [little_data(), little_data()]


def fails():
    raise RuntimeError("first line\nsecond line")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("Corra", {}, "'Corra' is unknown; choose Cora, "),
        ("Cora", {"x": 1}, "data.source_args: Cora takes no arguments, got x"),
        ("no.such.Thing", {}, "no.such.Thing: cannot be imported"),
        ("torch_geometric.datasets.NoSuch", {}, "cannot be imported"),
        ("torch.pi", {}, "neither a class nor a function"),
        (f"{__name__}.two_graphs", {}, "gives a list"),
        (f"{__name__}.fails", {}, "failed with RuntimeError: first line second line"),
        ("torch_geometric.datasets.KarateClub", {"nope": 1}, "failed with TypeError"),
    ],
)
def test_bad_sources(source, options, message, tmp_path):
    with pytest.raises(DataSourceError, match=message) as caught:
        load_source(source, None, tmp_path, options=options)
    assert "\n" not in str(caught.value)


def test_a_missing_root_is_named(tmp_path):
    with pytest.raises(DataSourceError, match=r"data.root .*nowhere: no such folder"):
        load_source("csbm", tmp_path / "nowhere", tmp_path)


@pytest.fixture
def ogb_folder(tmp_path):
    """A graph of 2,000 nodes in the layout ogbn-arxiv is downloaded in."""
    graph = sources.arxiv_sized(num_nodes=2000)
    folder = tmp_path / "root/ogbn_arxiv"
    columns = {
        "raw/edge": graph.edge_index[:, graph.edge_index[0] > graph.edge_index[1]].T,
        "raw/node-feat": graph.x,
        "raw/node-label": graph.y[:, None],
        "raw/node_year": graph.y[:, None],
        "raw/num-node-list": torch.tensor([[2000]]),
        "raw/num-edge-list": torch.tensor([[graph.num_edges // 2]]),
        "split/time/train": graph.masks["train"].nonzero(),
        "split/time/valid": graph.masks["val"].nonzero(),
        "split/time/test": graph.masks["test"].nonzero(),
    }
    for name, values in columns.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt", compresslevel=1) as file:
            np.savetxt(file, values.numpy(), delimiter=",", fmt="%.9g")
    (folder / "RELEASE_v1.txt").write_text("\n")
    return folder, graph


def test_ogb_layout(ogb_folder, tmp_path, capfd):
    folder, written = ogb_folder
    before = sorted(folder.rglob("*"))
    for _ in range(2):  # the second time from ogb's processed copy
        graph = read_ogb(folder, "ogbn-arxiv", tmp_path / "work")
        assert graph.digest() == written.digest()
        assert graph.num_raw_edges == written.num_edges // 2
        for split, mask in written.masks.items():
            assert torch.equal(graph.masks[split], mask)
    assert sorted(folder.rglob("*")) == before
    assert capfd.readouterr() == ("", "")
    with pytest.raises(DataSourceError, match=r"ogbn-arxiv: the files hold .*nodes=2000"):
        load_source("ogbn-arxiv", folder.parent, tmp_path / "cache")


def test_an_incomplete_ogb_folder_asks_nothing(ogb_folder, tmp_path):
    folder, _ = ogb_folder
    (folder / "RELEASE_v1.txt").unlink()
    with pytest.raises(DataSourceError, match=r"ogbn_arxiv: has no RELEASE_v1.txt"):
        load_source("ogbn-arxiv", folder.parent, tmp_path / "cache")
    assert (folder / "raw/edge.csv.gz").exists()


def test_a_damaged_ogb_file_names_the_folder(ogb_folder, tmp_path):
    folder, _ = ogb_folder
    (folder / "raw/edge.csv.gz").write_bytes(b"junk")
    with pytest.raises(DataSourceError, match="ogbn_arxiv: truncated or not in the expected format"):
        read_ogb(folder, "ogbn-arxiv", tmp_path / "work")


def test_an_ogb_archive_is_unpacked(tmp_path):
    (tmp_path / "arxiv/raw").mkdir(parents=True)
    (tmp_path / "arxiv/RELEASE_v1.txt").write_text("1")
    archive = shutil.make_archive(str(tmp_path / "cache" / "arxiv"), "zip", tmp_path, "arxiv")
    unpack_ogb(tmp_path / "cache" / "arxiv.zip", tmp_path / "cache" / "ogbn_arxiv")
    assert (tmp_path / "cache/ogbn_arxiv/RELEASE_v1.txt").read_text() == "1"
    assert not (tmp_path / archive).exists()
