"""Rounds of federated averaging, driven by training and by the methods that train."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.messages import Channel, Message
from page_lightning.federation.processes import sum_over_processes
from page_lightning.federation.recipe import Recipe
from page_lightning.federation.sampling import ClientSampler
from page_lightning.federation.stack import Tensors
from page_lightning.modules.local_training import LocalTraining, OptimizerState
from page_lightning.modules.stage import run_stage


class FederatedRounds:
    """FedAvg on a federation (PAGE Eq. 1-3).

    A round: the server's model goes to the clients that take part, each trains on its own graph, and the server steps
    to the weighted mean of what they send back.

    Args:
        federation: whose models are trained, in place.
        recipe: how.
        channel: what passes between server and clients.
        dropout: whether units are dropped.
    """

    def __init__(self, federation: Federation, recipe: Recipe, channel: Channel, *, dropout: bool = True) -> None:
        self.federation, self.recipe, self.channel, self.dropout = federation, recipe, channel, dropout
        self._sampler: ClientSampler | None = None
        self._stage: tuple[ClientGraphs, tuple[int, ...], LocalTraining] | None = None
        self._optimizer_store: OptimizerState = {}

    def run(self, graphs: ClientGraphs, round: int, server_optimizer: Optimizer) -> Tensor:  # noqa: A002
        """One round.

        Args:
            graphs: all clients; slots without training nodes receive the server's model and do not train.
            round: its number, which keys every random draw in it.
            server_optimizer: over the server's parameters; stepped once.

        Returns:
            The mean over clients of the loss of their last local epoch, a scalar.
        """
        federation = self.federation
        sampler = self._sampler_for(graphs)
        slots, weights = sampler.draw(round)
        server = federation.server_state()
        self.channel.send(Message.of_model("down", slots, server, federation.server_state), round)
        average, loss = self._train_clients(graphs, round, slots, weights, server)
        sum_over_processes([*average.values(), loss])
        self.channel.send(Message.of_model("up", slots, server, lambda: federation.client_state(slots)), round)
        if sampler.idle:
            federation.put(sampler.idle, server)
        self._step_server(average, server_optimizer)
        return loss

    def _train_clients(
        self, graphs: ClientGraphs, number: int, slots: tuple[int, ...], weights: Tensor, server: Tensors
    ) -> tuple[Tensors, Tensor]:
        """This process's share of the mean of models and of the mean loss."""
        federation = self.federation
        own = tuple(slot for slot in slots if slot in set(federation.owned))
        if not own:
            federation.hold(None, ())
            zeros = {name: torch.zeros_like(tensor) for name, tensor in federation.averaged_state().items()}
            return zeros, torch.zeros((), dtype=federation.dtype, device=graphs.device)
        stage = self._stage_for(graphs, number, own)
        stage.begin(number, server, keep_optimizer_state=self.recipe.keeps_optimizer_state)
        run_stage(stage, self.recipe.local_epochs)
        federation.hold(stage.stack, own)
        own_weights = weights if len(own) == len(weights) else weights[list(own)]
        loss = stage.reported["train/loss"] * (len(own) / len(slots))
        return stage.stack.weighted_sum(own_weights.to(loss.dtype)), loss

    @torch.no_grad()
    def _step_server(self, average: Tensors, optimizer: Optimizer) -> None:
        for name, parameter in self.federation.server.named_parameters():
            parameter.grad = parameter.detach() - average[name]
        for name, buffer in self.federation.server.named_buffers():
            if name in average:
                buffer.copy_(average[name])
        optimizer.step()

    def _sampler_for(self, graphs: ClientGraphs) -> ClientSampler:
        if self._sampler is None or self._sampler.graphs is not graphs:
            self._sampler = ClientSampler(graphs, self.recipe.participation, self.recipe.weighting, self.recipe.seed)
        return self._sampler

    def _stage_for(self, graphs: ClientGraphs, number: int, own: tuple[int, ...]) -> LocalTraining:
        """The stage that trains some clients; kept while the same ones train."""
        if self._stage is not None and self._stage[0] is graphs and self._stage[1] == own:
            return self._stage[2]
        self._store_optimizer_state()
        recipe = self.recipe
        separate = recipe.participation < 1 and recipe.keeps_optimizer_state  # step counts differ between clients
        part, index = graphs.select(own), list(own)
        stage = LocalTraining(
            self.federation.server, part, recipe.optimizer, recipe.ridge, recipe.seed, number,
            dropout=self.dropout, separate=separate,
        )  # fmt: skip
        stage.stack.load({name: tensor[index] for name, tensor in self.federation.client_buffers().items()})
        if recipe.keeps_optimizer_state and self._optimizer_store:
            state = {name: {k: v[index] for k, v in s.items()} for name, s in self._optimizer_store.items()}
            stage.load_optimizer_state(state)
        self._stage = graphs, own, stage
        return stage

    def _store_optimizer_state(self) -> None:
        """Write the running stage's optimizer state into the store of all clients, ``[K, ...]``."""
        if self._stage is None or not self.recipe.keeps_optimizer_state:
            return
        _, own, stage = self._stage
        index = list(own)
        for name, state in stage.optimizer_state().items():
            kept = self._optimizer_store.setdefault(name, {})
            for key, value in state.items():
                if key not in kept:
                    kept[key] = value.new_zeros(self.federation.num_clients, *value.shape[1:])
                kept[key][index] = value

    def optimizer_state(self) -> OptimizerState:
        """Every client's optimizer state ``[K, ...]``. Collective where several processes run."""
        self._store_optimizer_state()
        store = {name: {key: v.clone() for key, v in state.items()} for name, state in self._optimizer_store.items()}
        self.federation.share([tensor for state in store.values() for tensor in state.values()])
        return store

    def load_optimizer_state(self, state: OptimizerState) -> None:
        """Continue from :meth:`optimizer_state`."""
        self._optimizer_store, self._stage = state, None
