"""Give empty clients a share of the largest ones."""

import heapq

import numpy as np

from page_lightning.data.partitioners.base import Assignment


def fill_empty_clients(assignment: Assignment, num_clients: int, order: Assignment) -> Assignment:
    """Halve the largest client for every empty one.

    Args:
        assignment: Client of each node `[N]`, with `N >= num_clients`.
        num_clients: Number of clients.
        order: Permutation of the nodes `[N]` in which nodes that belong together are near; clients are halved along it.

    Returns:
        An assignment without an empty client; the same array where there was none.
    """
    sizes = np.bincount(assignment, minlength=num_clients)
    empty = np.flatnonzero(sizes == 0)
    if not len(empty):
        return assignment
    filled = assignment.copy()
    along = order[np.argsort(assignment[order], kind="stable")]
    members = np.split(along, np.cumsum(sizes)[:-1])
    largest = [(-size, client) for client, size in enumerate(sizes.tolist()) if size]
    heapq.heapify(largest)
    for client in empty.tolist():
        size, donor = heapq.heappop(largest)
        kept = (1 - size) // 2
        members[donor], members[client] = members[donor][:kept], members[donor][kept:]
        filled[members[client]] = client
        heapq.heappush(largest, (-kept, donor))
        heapq.heappush(largest, (size + kept, client))
    return filled


def split_largest(community: Assignment, num_communities: int) -> Assignment:
    """Halve the largest communities, in node order, until there are enough.

    Args:
        community: Community of each node `[N]`; numbers may be missing.
        num_communities: Number wanted, from that of present ones to `N`.

    Returns:
        Community of each node `[N]`, numbered without gaps.
    """
    _, present = np.unique(community, return_inverse=True)
    return fill_empty_clients(present.astype(np.int64), num_communities, np.arange(len(community)))
