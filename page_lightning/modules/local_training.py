"""Local training: every client fits its own training nodes (PAGE Eq. 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Optimizer
from typing_extensions import override

from page_lightning.backbones.base import Backbone
from page_lightning.federation.features import SparseFeatures
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.randomness import DropoutStream
from page_lightning.federation.stack import ClientStack, SeparateStack
from page_lightning.modules.stage import Stage

OptimizerState = dict[str, dict[str, Tensor]]
_SCALARS = {"step", "mu_product", "eta", "mu"}  # of the element-wise optimizers: one number for a whole stack


class LocalTraining(Stage):
    """Full-batch training of all clients' models at once; one step is one local epoch.

    The loss is the sum over clients of each client's mean cross-entropy on its training nodes, so that every client
    gets exactly its own gradient.

    Args:
        backbone: a built backbone; its parameters start every client.
        graphs: the clients to train; each needs a training node.
        optimizer: of the clients.
        ridge: adds ``ridge / 2 * ||theta||^2`` to each client's loss.
        seed: of the dropout streams; one for each federation where ``graphs`` holds several.
        round: communication round, which keys the dropout streams.
        dropout: whether units are dropped.
        separate: keep each client's tensors and optimizer apart; by default only where the optimizer asks for it.
    """

    def __init__(
        self,
        backbone: Backbone,
        graphs: ClientGraphs,
        optimizer: OptimizerOptions | None = None,
        ridge: float = 0.0,
        seed: int | Sequence[int] = 0,
        round: int = 0,  # noqa: A002 - the field's word
        *,
        dropout: bool = True,
        separate: bool = False,
    ) -> None:
        super().__init__()
        options = optimizer or OptimizerOptions()
        separate = separate or not options.element_wise
        dtype = next(backbone.parameters()).dtype
        sparse_input = graphs.x.layout == torch.sparse_csr and bool(backbone.input_weights)
        self.flow = graphs.flow(backbone.num_hops, dtype, "train", compact=sparse_input and not separate)
        if separate:
            self.stack: ClientStack = SeparateStack(backbone, graphs.num_clients)
        else:
            features = self.flow.hops[0].features
            layout = features.compact if sparse_input and isinstance(features, SparseFeatures) else None
            self.stack = ClientStack(backbone, graphs.num_clients, layout, graphs.num_groups)
        self.options, self.ridge = options, ridge
        if not isinstance(seed, int):
            seed = [own for own in seed for _ in range(graphs.num_clients // graphs.num_groups)]
        self.noise = DropoutStream(seed, graphs.clients, round, graphs.device)
        self.dropout = dropout
        self.labels = graphs.y[self.flow.target_index]
        per_client = graphs.count("train").to(dtype)
        self.node_weights = (1 / per_client)[graphs.client[self.flow.target_index]]
        self._optimizers = [options.build(group) for group in self._parameter_groups()]

    def _parameter_groups(self) -> list[list[Tensor]]:
        if isinstance(self.stack, SeparateStack):
            return [list(model.parameters()) for model in self.stack.models]
        return [list(self.stack.tensors)]

    @property
    @override
    def stage_optimizers(self) -> list[Optimizer]:
        return self._optimizers

    def begin(self, round: int, server: Mapping[str, Tensor], *, keep_optimizer_state: bool) -> None:  # noqa: A002
        """Start a communication round from the server's model."""
        self.stack.broadcast(server)
        self.noise.restart(round)
        if not keep_optimizer_state:
            for optimizer in self._optimizers:
                optimizer.state.clear()

    @override
    def training_step(self, batch: object = None, batch_idx: int = 0) -> Tensor:
        self.flow.noise = self.noise if self.dropout else None
        _, logits = self.stack(self.flow)
        self.flow.noise = None
        loss = F.cross_entropy(logits, self.labels, reduction="none") @ self.node_weights
        self.report("train/loss", loss.detach() / self.stack.num_clients)
        if self.ridge:
            loss = loss + self.ridge / 2 * torch.stack([p.square().sum() for _, p in self.stack.named()]).sum()
        return loss

    def optimizer_state(self) -> OptimizerState:
        """The optimizer's state by parameter and state name, each ``[K, ...]``."""
        result: OptimizerState = {}
        count = self.stack.num_clients
        for index, name in enumerate(self.stack.names):
            groups = zip(self._optimizers, self._parameter_groups(), strict=True)
            held = [optimizer.state.get(group[index], {}) for optimizer, group in groups]
            for key in held[0]:
                values = [torch.as_tensor(state[key]) for state in held]
                if isinstance(self.stack, SeparateStack):
                    stacked = torch.stack(values)
                elif key in _SCALARS:
                    stacked = values[0].expand(count).clone()
                else:
                    stacked = self.stack.from_layout(name, values[0])
                result.setdefault(name, {})[key] = stacked
        return result

    def load_optimizer_state(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Continue from a state as :meth:`optimizer_state` gives it."""
        for index, name in enumerate(self.stack.names):
            for slot, (optimizer, group) in enumerate(zip(self._optimizers, self._parameter_groups(), strict=True)):
                parameter = group[index]
                for key, value in state.get(name, {}).items():
                    if isinstance(self.stack, SeparateStack):
                        own = value[slot]
                    else:
                        own = value[0] if key in _SCALARS else self.stack.to_layout(name, value)
                    optimizer.state[parameter][key] = own.clone()
