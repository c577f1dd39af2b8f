"""Client models that still live in a training stack are the federation's models."""

import torch

from page_lightning.backbones import GCN
from page_lightning.data import FederatedGraphDataModule
from page_lightning.federation.federation import Federation
from page_lightning.federation.messages import Channel
from page_lightning.federation.recipe import Recipe
from page_lightning.modules.rounds import FederatedRounds

SMALL = {"class_sizes": [60, 50, 40], "num_edges": 400, "num_words": 120, "words_per_node": 8}


def after_a_round():
    data = FederatedGraphDataModule(num_clients=3, source_args=SMALL)
    data.setup()
    federation = Federation.create(GCN(8), 120, 3, 3, Recipe())
    server = federation.recipe.server_optimizer.build(federation.server.parameters())
    FederatedRounds(federation, federation.recipe, Channel()).run(data.graphs, 0, server)
    return federation


def test_what_is_put_stays_and_the_others_keep_what_they_learned():
    trained = {name: tensor.clone() for name, tensor in after_a_round().client_state().items()}
    federation = after_a_round()
    federation.put([1], {name: torch.full_like(tensor[1], 7.0) for name, tensor in trained.items()})
    for name, tensor in federation.client_state().items():
        assert (tensor[1] == 7).all(), name
        assert torch.equal(tensor[[0, 2]], trained[name][[0, 2]]), name
