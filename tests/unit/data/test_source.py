import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from page_lightning.data.source import SourceGraph
from page_lightning.errors import DataSourceError

X, EDGES, Y = np.ones((3, 2)), np.array([[0, 1], [1, 2]]), np.array([0, 1, 0])


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 12), st.data())
def test_edges_are_those_of_an_undirected_simple_graph(n, data):
    pairs = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
    reference = nx.Graph([(a, b) for a, b in pairs if a != b]).to_directed()
    edges = np.array(pairs, int).reshape(-1, 2).T
    graph = SourceGraph.from_arrays("g", np.ones((n, 1)), edges, np.zeros(n, int))
    assert list(map(tuple, graph.edge_index.T.tolist())) == sorted(reference.edges)
    assert (graph.adjacency().toarray() == graph.adjacency().toarray().T).all()
    assert graph.adjacency().nnz == graph.num_edges


@pytest.mark.parametrize("form", ["numpy", "scipy", "tensor", "csr_tensor"])
@pytest.mark.parametrize(("density", "layout"), [(0.15, torch.sparse_csr), (0.5, torch.strided)])
def test_features_keep_their_values_in_the_layout_their_density_asks_for(form, density, layout):
    x = (np.random.default_rng(0).random((40, 30)) < density) * 2.5
    forms = {
        "numpy": lambda: x,
        "scipy": lambda: sp.coo_matrix(x),
        "tensor": lambda: torch.from_numpy(x),
        "csr_tensor": lambda: torch.from_numpy(x).to_sparse_csr(),
    }
    graph = SourceGraph.from_arrays("g", forms[form](), np.zeros((2, 0), int), np.zeros(40, int))
    assert graph.x.layout == layout
    assert graph.x.dtype == torch.float32
    assert torch.equal(graph.x.to_dense(), torch.from_numpy(x).float())


def test_digest_is_a_function_of_content():
    def digest(x=X, edges=EDGES, y=Y, name="g"):
        return SourceGraph.from_arrays(name, x, edges, y, num_classes=2).digest()

    assert digest() == digest(name="other") == digest(edges=EDGES[:, ::-1]) == digest(edges=EDGES[::-1])
    changed = {digest(), digest(x=2 * X), digest(edges=EDGES[:, :1]), digest(y=1 - Y)}
    assert len(changed) == 4
    # Pinned: request files and caches hold digests, so they must not change between releases.
    assert digest() == "4cabd913ec7ab2714375ed7cff3453b929566a2a3acadabeb2212ee6c58769ea"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.array([[1, 2], [np.nan, 1], [1, np.inf]])}, "2 feature values are NaN or infinite, .* node 1"),
        ({"x": sp.csr_matrix(np.diag([0, np.nan, 0, 0, 0, 0])[:3])}, "1 feature values are NaN or infinite, .* node 1"),
        ({"x": np.ones((4, 2))}, r"features must have shape \[3, F\], got \[4, 2\]"),
        ({"x": np.ones((3, 0))}, r"features must have shape \[3, F\]"),
        ({"x": np.array([["a"], ["b"], ["c"]])}, "features must be numbers"),
        ({"y": np.array([0, -1, 0])}, "label -1 of node 1"),
        ({"y": np.array([0, 5, 0]), "num_classes": 3}, r"label 5 of node 1 is outside \[0, 3\)"),
        ({"y": np.array([0, 0.5, 0])}, "labels must be integers"),
        ({"y": np.array([0, np.nan, 0])}, "labels must be integers"),
        ({"y": np.eye(3)}, "one class per node"),
        ({"y": np.zeros(0, int)}, "one class per node"),
        ({"edge_index": np.array([[0], [3]])}, r"edge 0 \(0, 3\) names a node outside \[0, 3\)"),
        ({"edge_index": np.array([[-1], [1]])}, r"edge 0 \(-1, 1\)"),
        ({"edge_index": np.zeros((3, 2), int)}, r"shape \[2, E\]"),
        ({"edge_index": EDGES.astype(float)}, "must be integers"),
        ({"masks": {"train": Y}}, "must be named train, val, test"),
        ({"masks": dict.fromkeys(("train", "val", "test"), np.zeros(4, bool))}, r"shape \[3\]"),
    ],
)
def test_bad_content_is_named_in_one_line(change, message):
    arguments = {"x": X, "edge_index": EDGES, "y": Y} | change
    with pytest.raises(DataSourceError, match=f"^data.source g: .*{message}") as caught:
        SourceGraph.from_arrays("g", **arguments)
    assert "\n" not in str(caught.value)


def test_column_labels_and_whole_floats_are_accepted():
    graph = SourceGraph.from_arrays("g", X, EDGES, np.array([[0.0], [1.0], [0.0]]))
    assert graph.y.tolist() == [0, 1, 0]
    assert graph.num_classes == 2


def test_the_callers_arrays_are_not_shared():
    x, y = np.ones((3, 2), np.float32), Y.copy()
    graph = SourceGraph.from_arrays("g", x, EDGES, y)
    graph.x.zero_()
    graph.y.zero_()
    assert x.all()
    assert y.tolist() == [0, 1, 0]
