"""Federations that differ in their seed alone, trained as one stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from page_lightning.errors import ConfigurationError
from page_lightning.federation.aggregation import client_weights
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.messages import Channel
from page_lightning.federation.sampling import ClientSampler
from page_lightning.modules.local_training import LocalTraining
from page_lightning.modules.rounds import FederatedRounds
from page_lightning.modules.stage import run_stage

Progress = Callable[[int, int], None]


def train_ensemble(
    federation: Federation,
    graphs: ClientGraphs,
    seeds: Sequence[int],
    rounds: int,
    progress: Progress | None = None,
) -> list[Federation]:
    """Train one federation per seed from its own initial models, each as if it were trained alone.

    Where the recipe allows it (an element-wise client optimizer, all clients in every round) the federations are one
    stack of ``R K`` clients; elsewhere they are trained one after the other.

    Args:
        federation: gives architecture and recipe; not changed.
        graphs: all clients.
        seeds: one for each member, ``R`` numbers.
        rounds: communication rounds.
        progress: called after each round with the number of finished rounds and their total.
    """
    if rounds < 1:
        message = "an ensemble needs at least one training round"
        raise ConfigurationError(message)
    members = [federation.fresh(replace(federation.recipe, seed=seed)) for seed in seeds]
    for member in members:
        member.owned = range(member.num_clients)
    recipe = federation.recipe
    stackable = recipe.participation == 1 and recipe.optimizer.element_wise and recipe.server_optimizer.element_wise
    if stackable and len(members) > 1:
        _train_as_one_stack(members, graphs, rounds, progress)
    else:
        _train_in_turn(members, graphs, rounds, progress)
    for member in members:
        member.trained_rounds = rounds
    return members


def _train_in_turn(members: Sequence[Federation], graphs: ClientGraphs, rounds: int, progress: Progress | None) -> None:
    for place, member in enumerate(members):
        trainer = FederatedRounds(member, member.recipe, Channel())
        server_optimizer = member.recipe.server_optimizer.build(member.server.parameters())
        for number in range(rounds):
            trainer.run(graphs, number, server_optimizer)
            if progress is not None:
                progress(place * rounds + number + 1, rounds * len(members))
        member.gather()


def _train_as_one_stack(
    members: Sequence[Federation], graphs: ClientGraphs, rounds: int, progress: Progress | None
) -> None:
    first, count = members[0], len(members)
    recipe, clients = first.recipe, graphs.num_clients
    sampler = ClientSampler(graphs, 1.0, recipe.weighting, recipe.seed)
    part = graphs.select(sampler.able)
    weights = client_weights(part, recipe.weighting, range(part.num_clients)).to(part.device, first.dtype).repeat(count)
    stage = LocalTraining(
        first.server, part.repeat(count), recipe.optimizer, recipe.ridge, [m.recipe.seed for m in members]
    )
    servers = {
        name: torch.nn.Parameter(torch.stack([dict(m.server.named_parameters())[name].detach() for m in members]))
        for name, _ in first.server.named_parameters()
    }
    server_buffers: dict[str, Tensor] = {}
    optimizer = recipe.server_optimizer.build(servers.values())
    received: dict[str, Tensor] = {}
    for number in range(rounds):
        received = {name: parameter.detach().clone() for name, parameter in servers.items()}
        stage.begin(number, received, keep_optimizer_state=recipe.keeps_optimizer_state)
        run_stage(stage, recipe.local_epochs)
        average = stage.stack.weighted_sum(weights)
        for name, parameter in servers.items():
            parameter.grad = parameter.detach() - average[name]
        optimizer.step()
        server_buffers = {name: value for name, value in average.items() if name not in servers}
        if progress is not None:
            progress(number + 1, rounds)
    models = stage.stack.canonical()
    for place, member in enumerate(members):
        slots = slice(place * part.num_clients, (place + 1) * part.num_clients)
        member.set_server({name: value.detach()[place] for name, value in servers.items()})
        member.set_server({name: value[place] for name, value in server_buffers.items()})
        idle = [slot for slot in range(clients) if slot not in set(sampler.able)]
        if idle:
            member.put(idle, {name: value[place] for name, value in received.items()})
        member.put(sampler.able, {name: value[slots] for name, value in models.items()})
