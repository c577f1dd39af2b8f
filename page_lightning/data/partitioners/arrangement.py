"""A line through all nodes with neighbours close to each other, and cheap cuts of it."""

import math

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from page_lightning.data.partitioners.base import Assignment
from page_lightning.data.partitioners.communities import louvain_communities


def arrange(adjacency: sp.csr_matrix, resolution: float, num_clients: int, delta: int) -> Assignment:
    """Order nodes so that cutting the line into equal lengths leaves most communities whole.

    Communities larger than a client are divided into the communities inside them. The line is then filled client by
    client: next comes the community with most edges, for its size, to what the client has, among those that fit.

    Args:
        adjacency: Symmetric adjacency `[N, N]`.
        resolution: Resolution of the modularity.
        num_clients: Number of clients `K`, at most `N`.
        delta: Largest difference of a client's size from `N / K`, at least 1.

    Returns:
        A permutation of the nodes `[N]`.
    """
    linked = np.diff(adjacency.indptr) > 0
    isolated = np.flatnonzero(~linked)
    if not linked.any():
        return isolated
    nodes = np.flatnonzero(linked)
    inner = adjacency[nodes][:, nodes]
    pieces = _divide(inner, np.arange(len(nodes)), resolution, max(adjacency.shape[0] // num_clients, 2))
    piece = np.empty(len(nodes), np.int64)
    piece[np.concatenate(pieces)] = np.repeat(np.arange(len(pieces)), [len(members) for members in pieces])
    size = np.bincount(piece)
    ideal_size = adjacency.shape[0] / num_clients
    order = _fill(_between(inner, piece), size, ideal_size, _slack(ideal_size, delta))
    return np.concatenate([*(nodes[pieces[i]] for i in order), isolated])


def cut(adjacency: sp.csr_matrix, order: Assignment, num_clients: int, delta: int) -> Assignment:
    """Cut a line of nodes into clients where the fewest edges cross.

    Args:
        adjacency: Symmetric adjacency `[N, N]`.
        order: Permutation of the nodes `[N]`.
        num_clients: Number of clients `K`, at most `N`.
        delta: Largest difference of a client's size from `N / K`, at least 1.

    Returns:
        Client of each node `[N]`.
    """
    num_nodes = len(order)
    position = np.empty(num_nodes, np.int64)
    position[order] = np.arange(num_nodes)
    edges = adjacency.tocoo()
    source, target = position[edges.row], position[edges.col]
    upward = source < target
    # An edge from a to b crosses the cuts before positions a + 1 ... b.
    change = np.bincount(source[upward] + 1, minlength=num_nodes + 1)
    change -= np.bincount(target[upward] + 1, minlength=num_nodes + 1)
    crossing = np.cumsum(change)

    ideal_size = num_nodes / num_clients
    slack = _slack(ideal_size, delta)
    cuts = np.empty(num_clients - 1, np.int64)
    for i in range(1, num_clients):
        ideal = i * ideal_size
        candidates = np.arange(math.ceil(ideal - slack), math.floor(ideal + slack) + 1)
        if len(candidates):
            cost = crossing[candidates]
            best = candidates[cost == cost.min()]
            cuts[i - 1] = best[np.argmin(np.abs(best - ideal))]
        else:
            cuts[i - 1] = math.floor(ideal)
    return np.searchsorted(cuts, position, side="right")


def _between(adjacency: sp.csr_matrix, community: Assignment) -> sp.csr_matrix:
    """Number of edges between each two communities `[G, G]`, zero on the diagonal."""
    num_nodes = len(community)
    member = sp.csr_matrix((np.ones(num_nodes), community, np.arange(num_nodes + 1)))
    weight = (member.T @ adjacency @ member).tocsr()
    weight.setdiag(0)
    return weight


def _divide(adjacency: sp.csr_matrix, nodes: Assignment, resolution: float, limit: int) -> list[Assignment]:
    """Communities of `nodes`, those larger than `limit` divided again where Louvain finds parts in them."""
    if len(nodes) <= limit:
        return [nodes]
    community = louvain_communities(adjacency, resolution)
    if not community.any():
        return [nodes[reverse_cuthill_mckee(adjacency, symmetric_mode=True)]]
    pieces = []
    for members in np.split(np.argsort(community, kind="stable"), np.cumsum(np.bincount(community))[:-1]):
        inner = adjacency[members][:, members] if len(members) > limit else adjacency
        pieces += _divide(inner, nodes[members], resolution, limit)
    return pieces


def _fill(weight: sp.csr_matrix, size: Assignment, ideal_size: float, slack: float) -> list[int]:
    """Order pieces, given the edges between them `[G, G]`, so that borders fall near multiples of `ideal_size`."""
    left = np.ones(len(size), bool)
    affinity = np.zeros(len(size))
    order: list[int] = []
    filled, end = 0, ideal_size
    while left.any():
        fits = left & (size <= end + slack - filled)
        score = np.where(fits if fits.any() else left, affinity / size, -1.0)
        best = int(score.argmax())
        if score[best] <= 0:  # none of them has an edge to this client: go on with the largest
            best = int(np.where(score == 0, size, -1).argmax())
        order.append(best)
        left[best] = False
        filled += int(size[best])
        split = filled > end + slack
        full = filled >= end - slack
        if full:
            end += ideal_size * math.ceil((filled - end + slack + 1e-9) / ideal_size)
            affinity[:] = 0
        if split or not full:  # the piece, or the rest of it, belongs to the client being filled
            _add_row(affinity, weight, best)
    return order


def _slack(ideal_size: float, delta: int) -> float:
    """How far a cut may be from its ideal place, so that sizes keep to `delta` and to half of the ideal size."""
    return min(delta, ideal_size / 2, ideal_size - 1) / 2


def _add_row(affinity: npt.NDArray[np.float64], weight: sp.csr_matrix, row: int) -> None:
    span = slice(weight.indptr[row], weight.indptr[row + 1])
    affinity[weight.indices[span]] += weight.data[span]
