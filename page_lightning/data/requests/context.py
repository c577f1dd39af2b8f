"""Which data a request was made for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from page_lightning.csr import csr_to_scipy
from page_lightning.errors import StaleRequestError
from page_lightning.federation.graphs import ClientGraphs


@dataclass(frozen=True)
class RequestContext:
    """Digests of the clients' graphs that a request was made for; the same on every machine.

    Attributes:
        dataset: Name of the data set.
        data_sha256: Of features, labels and edges between original ids, in any order.
        partition_sha256: Of the original ids of each client's nodes.
        split_sha256: Of the training, validation and test nodes.
        num_clients: Number of clients `K`, departed ones counted.
    """

    dataset: str
    data_sha256: str
    partition_sha256: str
    split_sha256: str
    num_clients: int

    @classmethod
    def of(cls, graphs: ClientGraphs, name: str) -> RequestContext:
        """The context of graphs as they are now.

        Args:
            graphs: All clients' graphs.
            name: Name of the data set.
        """
        ids = graphs.node_id.cpu().numpy()
        source, target = ids[graphs.edge_index.cpu().numpy()]
        edges = np.sort((source << 32) | target)
        shape = np.array([*graphs.x.shape, graphs.num_classes])
        if graphs.x.layout == torch.sparse_csr:
            matrix = csr_to_scipy(graphs.x)
            features = [matrix.indptr, matrix.indices, matrix.data]
        else:
            features = [graphs.x.cpu().numpy()]
        return cls(
            dataset=name,
            data_sha256=_sha256(shape, *features, graphs.y.cpu().numpy(), edges),
            partition_sha256=_sha256(np.array(graphs.sizes), ids),
            split_sha256=_sha256(ids, *(graphs.masks[split].cpu().numpy() for split in sorted(graphs.masks))),
            num_clients=graphs.num_clients,
        )

    def check(self, graphs: ClientGraphs, name: str, origin: str) -> None:
        """Refuse graphs other than those of this context.

        Args:
            graphs: All clients' graphs.
            name: Name of the data set.
            origin: Start of the message.

        Raises:
            StaleRequestError: Something differs; the message names it.
        """
        current = RequestContext.of(graphs, name)
        facts = (
            ("data set", self.dataset, current.dataset),
            ("number of clients", str(self.num_clients), str(current.num_clients)),
            ("partition digest", self.partition_sha256, current.partition_sha256),
            ("split digest", self.split_sha256, current.split_sha256),
            ("data digest", self.data_sha256, current.data_sha256),
        )
        for fact, made_for, found in facts:
            if made_for != found:
                msg = f"{origin} was made for another federation: {fact} {made_for[:16]}, here {found[:16]}"
                raise StaleRequestError(msg)


def _sha256(*arrays: npt.NDArray[np.generic]) -> str:
    """One digest of arrays: element kind, shape and little-endian content, integers as 64 bits."""
    state = hashlib.sha256()
    for array in arrays:
        plain = array.astype(np.int64) if array.dtype.kind in "iu" else array
        plain = np.ascontiguousarray(plain.astype(plain.dtype.newbyteorder("<"), copy=False))
        state.update(f"{plain.dtype.kind}{plain.dtype.itemsize}{plain.shape};".encode())
        state.update(plain.tobytes())
    return state.hexdigest()
