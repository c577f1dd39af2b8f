"""The reference that a report is judged by: federations retrained, and trained on everything, with fresh seeds."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from page_lightning.audit.audit_input import AuditInput
from page_lightning.audit.queries import Queries
from page_lightning.configuration import class_config
from page_lightning.data.requests import UnlearningRequest
from page_lightning.federation.federation import Federation
from page_lightning.federation.stack import Tensors
from page_lightning.modules.ensemble import Progress, train_ensemble

_SEED_STEP = 1_000_003


@dataclass(frozen=True, eq=False)
class ReferenceEnsemble:
    """Logits of ``R`` retrained and ``R`` original federations on a report's node sets, all with fresh seeds.

    Args:
        retrain: ``[R, n, C]`` for every retained model.
        original: the same for federations trained on all data, none with the original's seed.
        retrain_local: logits of each client's own model on its own nodes, ``[R, N, C]``.
        original_local: the same for the originals.
        retrain_state: state dict of one more retrained federation, which has the original's initial weights and random
            streams: the row ``retrain``.
    """

    retrain: dict[str, Tensor]
    original: dict[str, Tensor]
    retrain_local: Tensor
    original_local: Tensor
    retrain_state: Tensors

    @property
    def size(self) -> int:
        """``R``."""
        return len(self.retrain_local)

    def audit_input(self, queries: Queries, federation: Federation) -> AuditInput:
        """What the audit of a federation reads.

        Args:
            queries: the node sets that the reference was made for.
            federation: the models under test.
        """
        sets = queries.sets
        return AuditInput(
            queries.logits(federation),
            self.retrain,
            self.original,
            y={name: nodes.y for name, nodes in sets.items()},
            forgotten={name: nodes.forgotten for name, nodes in sets.items()},
            held_out={name: nodes.held_out for name, nodes in sets.items()},
            retained={name: nodes.retained for name, nodes in sets.items()},
        )


def reference_ensemble(
    federation: Federation,
    queries: Queries,
    request: UnlearningRequest,
    size: int,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> ReferenceEnsemble:
    """Train the reference, or read it from the cache.

    The cache key is a digest of data, partition, split, request, architecture, recipe, rounds and seeds, so every
    report on the same request shares one ensemble and nothing stale is ever read.

    Args:
        federation: the trained federation; gives architecture, recipe and number of rounds.
        queries: the node sets.
        request: what is forgotten.
        size: ``R``, at least 2.
        cache: folder for ensembles; none keeps nothing.
        progress: called with finished and total rounds.
    """
    seed = federation.recipe.seed
    seeds = [seed + _SEED_STEP * place for place in range(2 * size + 1)]
    path = None if cache is None else cache / "ensembles" / f"{_digest(federation, request, seeds)}.pt"
    if path is not None and path.is_file():
        try:
            saved = torch.load(path, map_location=queries.clients.device, weights_only=True)
            return ReferenceEnsemble(**saved)
        except (RuntimeError, EOFError, TypeError, pickle.UnpicklingError):
            path.unlink()  # damaged: it is only a cache, train again
    rounds = federation.trained_rounds
    halves = [0, 0]

    def report(half: int) -> Progress:
        def both(done: int, total: int) -> None:
            halves[half] = done
            if progress is not None:
                progress(sum(halves), 2 * total)

        return both

    same_start, *retrained = train_ensemble(federation, queries.retained, seeds[: size + 1], rounds, report(0))
    retrain, retrain_local = _answers(queries, retrained)
    state = {name: tensor.clone() for name, tensor in same_start.state_dict().items()}
    del same_start, retrained
    originals = train_ensemble(federation, queries.clients, seeds[size + 1 :], rounds, report(1))
    original, original_local = _answers(queries, originals)
    ensemble = ReferenceEnsemble(retrain, original, retrain_local, original_local, state)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{torch.distributed.get_rank() if torch.distributed.is_initialized() else 0}.tmp")
        torch.save(vars(ensemble), draft)
        draft.replace(path)
    return ensemble


def purge_ensembles(cache: Path) -> None:
    """Delete every cached ensemble: after a client has left, none may hold its models or answers about its nodes."""
    shutil.rmtree(cache / "ensembles", ignore_errors=True)


def retrained_federation(federation: Federation, ensemble: ReferenceEnsemble) -> Federation:
    """The retrained federation with the original's start."""
    member = federation.fresh()
    member.load_state_dict(ensemble.retrain_state)
    member.trained_rounds = federation.trained_rounds
    return member


def _answers(queries: Queries, members: Sequence[Federation]) -> tuple[dict[str, Tensor], Tensor]:
    logits = [queries.logits(member) for member in members]
    local = torch.stack([queries.local(member) for member in members])
    return {name: torch.stack([each[name] for each in logits]) for name in logits[0]}, local


def _digest(federation: Federation, request: UnlearningRequest, seeds: Sequence[int]) -> str:
    content = {
        "request": request.request_id,
        "backbone": class_config(federation.server),
        "recipe": asdict(federation.recipe),
        "rounds": federation.trained_rounds,
        "dtype": str(federation.dtype),
        "seeds": list(seeds),
        "torch": torch.__version__,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
