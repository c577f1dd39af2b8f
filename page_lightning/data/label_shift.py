"""Poisoned labels, and the request that forgets exactly the nodes or clients that carry them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from page_lightning.data.apply_request import forgotten_nodes
from page_lightning.data.requests import RequestContext, RequestOptions, UnlearningRequest
from page_lightning.data.requests.checks import check_client
from page_lightning.data.streams import Stream
from page_lightning.errors import PoisonError
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.randomness import stream_key


def label_shift(
    graphs: ClientGraphs,
    *,
    name: str,
    clients: Sequence[int] | None = None,
    ratio: float | None = None,
    seed: int = 0,
) -> tuple[ClientGraphs, UnlearningRequest]:
    """Give training nodes the next class, `(y + 1) mod C`.

    Evaluate on `graphs`, which are clean.

    Args:
        graphs: All clients' graphs; not changed.
        name: Name of the data set, for the request.
        clients: Clients all of whose training nodes are poisoned; the request is that they leave.
        ratio: Instead, the share of every client's training nodes to poison, rounded down but at least one; the request
            is to remove these nodes.
        seed: Seed of the draw of nodes, not negative.

    Returns:
        The poisoned graphs and the request.

    Raises:
        PoisonError: The options contradict each other or make no sense.
        RequestError: A client does not exist, or too little would be left after the request.
    """
    if (clients is None) == (ratio is None):
        msg = "label shift: give either clients or ratio"
        raise PoisonError(msg)
    if clients is not None and not clients:
        msg = "label shift: name at least one client"
        raise PoisonError(msg)
    if ratio is not None and not 0 < ratio < 1:
        msg = f"label shift: ratio {ratio} must be above 0 and below 1"
        raise PoisonError(msg)
    if seed < 0 or graphs.num_classes < 2:
        msg = f"label shift: seed {seed} must not be negative, and {graphs.num_classes} classes not fewer than 2"
        raise PoisonError(msg)
    for client in clients or ():
        check_client(graphs, client, "label shift")
    if clients is not None:
        options = RequestOptions(kind="client", clients=list(clients))
    else:
        options = RequestOptions(kind="node", ratio=ratio, seed=stream_key(seed, Stream.LABEL_SHIFT) >> 1)
    chosen = options.build(graphs, name)
    y = graphs.y.clone()
    rows = forgotten_nodes(graphs, chosen)
    y[rows] = (y[rows] + 1) % graphs.num_classes
    poisoned = ClientGraphs(
        graphs.x,
        graphs.edge_index,
        y,
        graphs.sizes,
        graphs.node_id,
        graphs.masks,
        graphs.num_classes,
        graphs.clients,
    )
    selection = {"mode": "label_shift", "clients": options.clients, "ratio": ratio, "seed": seed}
    return poisoned, replace(chosen, context=RequestContext.of(poisoned, name), selection=selection)
