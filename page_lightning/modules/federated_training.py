"""Federated averaging as one LightningModule: one epoch is one communication round."""

from __future__ import annotations

import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.optim import Optimizer
from typing_extensions import override

from page_lightning.backbones.base import Backbone
from page_lightning.backbones.gcn import GCN
from page_lightning.configuration import build_class, class_config
from page_lightning.errors import CheckpointMismatchError, ConfigurationError
from page_lightning.federation.aggregation import Weighting
from page_lightning.federation.federation import Federation
from page_lightning.federation.flow import Flow
from page_lightning.federation.graphs import ClientGraphs, SplitName
from page_lightning.federation.history import History
from page_lightning.federation.messages import Channel
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.processes import owners
from page_lightning.federation.recipe import Recipe
from page_lightning.federation.sampling import ClientSampler
from page_lightning.metrics.classification import ClientClassification
from page_lightning.modules.rounds import FederatedRounds

_UNBUILT = "the federation has no models yet: call build() or start a Trainer with a data module"
Evaluation = Literal["local_on_local", "global_on_local", "global_on_global", "local_on_global"]


class FederatedTraining(LightningModule):
    """FedAvg over clients that each hold a subgraph (PAGE Eq. 1-3, as OpenFGL simulates it).

    A round: the server's model goes to the clients that take part, each trains some local epochs on its own graph, and
    the server takes the weighted mean of their parameters. Buffers (batch-norm statistics) stay with the clients; the
    server keeps their mean for its own evaluation only.

    Args:
        backbone: architecture of every model.
        local_epochs: full-batch steps of each client in a round.
        optimizer: of the clients.
        optimizer_state: ``keep`` a client's moments from round to round, as OpenFGL does, or ``reset`` them.
        ridge: adds ``ridge / 2 * ||theta||^2`` to each client's loss; apart from weight decay.
        participation: share of clients that train in a round, drawn anew each round; at least one.
        weighting: what a client counts in the mean: its ``nodes``, its ``train_nodes``, or all alike (``uniform``).
        server_optimizer: steps the server's model along (server - mean of clients); SGD with lr 1 is plain averaging.
        evaluation: models and data to score: the {local, global} model on {local, global} data. ``local`` is a client's
            model after its local epochs; ``global`` data are the whole graph with the edges between clients.
        auroc: also compute AUROC in every validation; tests always do.
        seed: of initial weights, dropout and sampling of clients; apart from ``data.seed``.
    """

    def __init__(
        self,
        backbone: Backbone = GCN(),  # noqa: B008 - options only; build() makes the parameters on a copy
        local_epochs: int = 3,
        optimizer: OptimizerOptions = OptimizerOptions(),  # noqa: B008 - frozen
        optimizer_state: Literal["keep", "reset"] = "keep",
        ridge: float = 0.0,
        participation: float = 1.0,
        weighting: Weighting = "nodes",
        server_optimizer: OptimizerOptions = OptimizerOptions("SGD", lr=1.0, weight_decay=0.0),  # noqa: B008
        evaluation: list[Evaluation] = ["local_on_local", "global_on_local"],  # noqa: B006 - never changed
        auroc: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        # A checkpoint's hyperparameters are plain values.
        backbone = build_class(backbone) if isinstance(backbone, dict) else build_class(class_config(backbone))
        optimizer, server_optimizer = (
            OptimizerOptions(**o) if isinstance(o, dict) else o for o in (optimizer, server_optimizer)
        )
        self.automatic_optimization = False
        self.recipe = Recipe(
            local_epochs, optimizer, optimizer_state, ridge, participation, weighting, server_optimizer, seed
        )
        self.evaluation, self.auroc = list(evaluation), auroc
        self.save_hyperparameters(  # what the models are; what is scored may change from run to run
            {
                "backbone": class_config(backbone),
                **asdict(self.recipe),
            }
        )
        self._unbuilt = (backbone,)  # in a tuple, so that it is no submodule
        self.federation: Federation | None = None
        self.channel = Channel()
        self.best: dict[str, float] = {}
        self._rounds: FederatedRounds | None = None
        self.requests: list[str] = []
        self._metrics: dict[tuple[SplitName, Evaluation], ClientClassification] = {}
        self._client_scores: dict[str, dict[str, list[float]]] = {}

    # -- building ------------------------------------------------------------------------------------------------------

    def build(self, num_features: int, num_classes: int, num_clients: int) -> Federation:
        """Create the models, from ``seed``; does nothing where they exist with these sizes.

        Raises:
            CheckpointMismatchError: they exist with other sizes.
        """
        sizes = {"features": num_features, "classes": num_classes, "clients": num_clients}
        if self.federation is None:
            self.federation = Federation.create(self._unbuilt[0], num_features, num_classes, num_clients, self.recipe)
            self._rounds = FederatedRounds(self.federation, self.recipe, self.channel)
            self._sizes = sizes
        else:
            _require_equal_sizes(self._sizes, sizes)
        return self.federation

    def check(self, graphs: ClientGraphs, num_processes: int = 1, sizes: dict[str, int] | None = None) -> None:
        """Look for mistakes in the options before anything is trained or written.

        Args:
            graphs: the data.
            num_processes: how many share the clients.
            sizes: numbers of features, classes and clients of the checkpoint that will be loaded.

        Raises:
            ConfigurationError: an option does not fit the data or another option.
            CheckpointMismatchError: the checkpoint does not fit the data.
        """
        needed = {"features": graphs.num_features, "classes": graphs.num_classes, "clients": graphs.num_clients}
        _require_equal_sizes(sizes or needed, needed)
        if num_processes > graphs.num_clients:
            message = (
                f"trainer.devices asks for {num_processes} processes, but there are only {graphs.num_clients} clients "
                "to train: use at most that many"
            )
            raise ConfigurationError(message)
        recipe = self.recipe
        ClientSampler(graphs, recipe.participation, recipe.weighting, recipe.seed)
        for optimizer in (recipe.optimizer, recipe.server_optimizer):
            optimizer.build([torch.zeros(1, requires_grad=True)])
        with torch.random.fork_rng([]):
            copy.deepcopy(self._unbuilt[0]).build(graphs.num_features, graphs.num_classes)

    @override
    def configure_model(self) -> None:
        if self._trainer is None:  # load_from_checkpoint: the checkpoint knows the sizes
            return
        datamodule = self.trainer.datamodule  # type: ignore[attr-defined]
        if datamodule is None:
            message = "start the Trainer with a FederatedGraphDataModule"
            raise ConfigurationError(message)
        graphs: ClientGraphs = datamodule.graphs
        federation = self.build(graphs.num_features, graphs.num_classes, graphs.num_clients)
        self.check(graphs, self.trainer.world_size)
        owner = owners(graphs.sizes, self.trainer.world_size)
        federation.owned = [slot for slot, rank in enumerate(owner) if rank == self.trainer.global_rank]

    @property
    def backbone(self) -> Backbone:
        """The architecture, without parameters."""
        return self._unbuilt[0]

    @property
    def models(self) -> Federation:
        """The federation, once built."""
        if self.federation is None:
            raise ConfigurationError(_UNBUILT)
        return self.federation

    @override
    def configure_optimizers(self) -> Optimizer:
        return self.recipe.server_optimizer.build(self.models.server.parameters())

    # -- a round -------------------------------------------------------------------------------------------------------

    @property
    def rounds(self) -> FederatedRounds:
        """What runs a round, once the models are built."""
        if self._rounds is None:
            raise ConfigurationError(_UNBUILT)
        return self._rounds

    @override
    def training_step(self, batch: ClientGraphs, batch_idx: int = 0) -> None:
        optimizer: Optimizer = self.optimizers()  # type: ignore[assignment]
        loss = self.rounds.run(batch, self.current_epoch, optimizer)
        self.models.trained_rounds = self.current_epoch + 1
        self.log("train/loss", loss, prog_bar=True, batch_size=1)

    # -- evaluation ----------------------------------------------------------------------------------------------------

    @override
    def validation_step(self, batch: ClientGraphs, batch_idx: int = 0) -> None:
        self._evaluate(batch, ("val", "test") if self.trainer.state.fn == "fit" else ("val",))

    @override
    def on_test_epoch_start(self) -> None:
        self._metrics.clear()

    @override
    def test_step(self, batch: ClientGraphs, batch_idx: int = 0) -> None:
        self._evaluate(batch, ("test",))

    def _evaluate(self, graphs: ClientGraphs, splits: tuple[SplitName, ...]) -> None:
        """Score every mode; each process counts the nodes (or the models) of its own clients."""
        own = torch.zeros(graphs.num_clients, dtype=torch.bool, device=graphs.device)
        own[list(self.models.owned)] = True
        masks = {split: graphs.masks[split] & own[graphs.client] for split in splits}
        for split in splits:
            for mode in self.evaluation:
                auroc = self.auroc or self.trainer.state.fn == "test"
                metric = ClientClassification(graphs.sizes, graphs.num_classes, auroc=auroc).to(graphs.device)
                self._metrics[split, mode] = metric
        for mode in self.evaluation:
            if mode == "local_on_global":
                self._score_clients_on_whole_graph(graphs, splits)
                continue
            logits = self._logits(graphs, mode)
            for split, mask in masks.items():
                self._metrics[split, mode].update(logits[mask], graphs.y[mask], graphs.client[mask])

    @torch.no_grad()
    def _logits(self, graphs: ClientGraphs, mode: Evaluation) -> Tensor:
        if mode == "global_on_global":
            return self.models.run_server(self._whole_flow(graphs))[1][graphs.node_id]
        flow = graphs.flow(self.models.server.num_hops, self.models.dtype)
        run = self.models.run_clients if mode == "local_on_local" else self.models.run_server
        return run(flow)[1]

    @torch.no_grad()
    def _score_clients_on_whole_graph(self, graphs: ClientGraphs, splits: tuple[SplitName, ...]) -> None:
        flow = self._whole_flow(graphs)
        for slot in range(graphs.num_clients):
            logits = self.models.run_client(slot, flow)[1][graphs.node_id]
            for split in splits:
                mask = graphs.masks[split] if slot in set(self.models.owned) else torch.zeros_like(graphs.masks[split])
                owner = torch.full_like(graphs.y[mask], slot)
                self._metrics[split, "local_on_global"].update(logits[mask], graphs.y[mask], owner)

    def _whole_flow(self, graphs: ClientGraphs) -> Flow:
        whole: ClientGraphs = self.trainer.datamodule.whole_graph(graphs.device)  # type: ignore[attr-defined]
        return whole.flow(self.models.server.num_hops, self.models.dtype)

    @override
    def on_validation_epoch_end(self) -> None:
        scores = {key: metric.compute() for key, metric in self._metrics.items()}
        for (split, mode), figures in scores.items():
            if split == "val":
                for name, value in figures.items():
                    self.log(f"val/{mode}/{name}", value, prog_bar=name == "accuracy", rank_zero_only=True)
        if self.trainer.state.fn == "fit":
            main = self.evaluation[0]
            accuracy = float(scores["val", main]["accuracy"])
            if accuracy > self.best.get("val_accuracy", -1.0):
                test = float(scores["test", main]["accuracy"])
                self.best = {"round": float(self.current_epoch), "val_accuracy": accuracy, "test_accuracy": test}
            self.log("best/test_accuracy", self.best["test_accuracy"], rank_zero_only=True)

    @override
    def on_test_epoch_end(self) -> None:
        self._client_scores = {}
        for (split, mode), metric in self._metrics.items():
            for name, value in metric.compute().items():
                self.log(f"{split}/{mode}/{name}", value, rank_zero_only=True)
            with metric.sync_context():
                figures = metric.per_client()
            self._client_scores[mode] = {name: values.tolist() for name, values in figures.items()}

    def client_scores(self) -> dict[str, dict[str, list[float]]]:
        """Each client's figures of the last test: ``{"local_on_local": {"accuracy": [K numbers], ...}, ...}``."""
        return self._client_scores

    def adopt(self, federation: Federation, requests: list[str]) -> None:
        """Take over an unlearned federation; nothing of the training that led to the old one is kept.

        Args:
            federation: the unlearned models.
            requests: files of the requests behind them, oldest first.
        """
        self.federation, self.requests = federation, requests
        self.channel, self.best = Channel(), {}
        self._rounds = FederatedRounds(federation, self.recipe, self.channel)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["federation"] = {
            "sizes": self._sizes,
            "trained_rounds": self.models.trained_rounds,
            "best": self.best,
            "ledger": self.channel.state(),
            "client_optimizer": self.rounds.optimizer_state(),
            "requests": self.requests,
            "history": None if self.models.history is None else str(self.models.history.folder),
        }

    def restore(self, checkpoint: dict[str, Any], graphs: ClientGraphs) -> None:
        """Take models and counters from a checkpoint, outside a Trainer.

        Args:
            checkpoint: as ``fit`` or ``unlearn`` wrote it.
            graphs: the data it has to fit.

        Raises:
            CheckpointMismatchError: it does not.
        """
        self.build(graphs.num_features, graphs.num_classes, graphs.num_clients)
        self.on_load_checkpoint(checkpoint)
        self.load_state_dict(checkpoint["state_dict"])

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        saved = checkpoint.get("federation")
        if saved is None:
            message = "the checkpoint holds no federation: it was not written by page-lightning"
            raise CheckpointMismatchError(message)
        federation = self.build(saved["sizes"]["features"], saved["sizes"]["classes"], saved["sizes"]["clients"])
        theirs = {name: tuple(tensor.shape) for name, tensor in checkpoint["state_dict"].items()}
        ours = {f"federation.{name}": tuple(tensor.shape) for name, tensor in federation.state_dict().items()}
        if theirs != ours:
            odd = sorted(theirs.items() ^ ours.items())[0][0]
            message = f"the checkpoint's models differ from model.backbone, first at '{odd}'"
            raise CheckpointMismatchError(message)
        federation.trained_rounds = saved["trained_rounds"]
        federation.history = History(Path(saved["history"])) if saved.get("history") else None
        self.best, self.requests = saved["best"], saved["requests"]
        self.channel.load(saved["ledger"])
        self.rounds.load_optimizer_state(saved["client_optimizer"])


def _require_equal_sizes(have: dict[str, int], need: dict[str, int]) -> None:
    if have != need:
        model, data = (", ".join(f"{v} {k}" for k, v in s.items()) for s in (have, need))
        message = f"the model was made for {model}, but the data have {data}: check the checkpoint and the data options"
        raise CheckpointMismatchError(message)
