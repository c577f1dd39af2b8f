"""Louvain and METIS communities."""

import warnings

import numpy as np
import numpy.typing as npt
import pymetis
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sknetwork.clustering import Louvain as LouvainAlgorithm

from page_lightning.data.partitioners.base import Assignment


def louvain_communities(adjacency: sp.csr_matrix, resolution: float) -> Assignment:
    """Louvain communities by Newman modularity, numbered by first appearance in node order.

    Args:
        adjacency: Symmetric adjacency `[N, N]`.
        resolution: Resolution of the modularity; larger gives smaller communities.

    Returns:
        Community of each node `[N]`; singletons where there is no edge. Nothing is random.
    """
    num_nodes = adjacency.shape[0]
    if adjacency.nnz == 0:
        return np.arange(num_nodes)
    labels = LouvainAlgorithm(modularity="newman", resolution=resolution).fit_predict(adjacency)
    return _by_first_appearance(labels)


def metis_parts(adjacency: sp.csr_matrix, num_parts: int, seed: int | None) -> Assignment:
    """METIS parts with few edges between them and nearly equal sizes.

    Args:
        adjacency: Symmetric adjacency `[N, N]`.
        num_parts: Number of parts, at most `N`; METIS may leave some empty.
        seed: Seed, or None for METIS's own.

    Returns:
        Part of each node `[N]`.
    """
    num_nodes = adjacency.shape[0]
    if num_parts == 1:
        return np.zeros(num_nodes, np.int64)
    if adjacency.nnz == 0:
        blocks: Assignment = np.arange(num_nodes) * num_parts // num_nodes
        return blocks
    options = pymetis.Options() if seed is None else pymetis.Options(seed=seed % 2**31)
    lists = pymetis.CSRAdjacency(adjacency.indptr, adjacency.indices)
    return np.asarray(pymetis.part_graph(num_parts, adjacency=lists, options=options).vertex_part, np.int64)


def cluster_by_labels(
    community: Assignment, y: npt.NDArray[np.int64], num_classes: int, num_clients: int, seed: int
) -> Assignment:
    """Bring communities with similar label distributions together (k-means), as OpenFGL's "plus" simulations do.

    Args:
        community: Community of each node `[N]`.
        y: Class of each node `[N]`.
        num_classes: Number of classes `C`.
        num_clients: Number of clusters, at most that of communities; some may stay empty where distributions coincide.
        seed: Seed of k-means.

    Returns:
        Cluster of each node `[N]`.
    """
    _, community = np.unique(community, return_inverse=True)
    num_communities = int(community.max()) + 1
    counts = np.bincount(community * num_classes + y, minlength=num_communities * num_classes)
    counts = counts.reshape(num_communities, num_classes)
    distribution = counts / counts.sum(1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct distributions than clusters
        cluster = KMeans(num_clients, random_state=seed % 2**32).fit_predict(distribution)
    assignment: Assignment = cluster.astype(np.int64)[community]
    return assignment


def _by_first_appearance(labels: npt.NDArray[np.integer]) -> Assignment:
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]
