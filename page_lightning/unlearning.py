"""One unlearning job: run the method and what it is compared with, judge them all alike, write the report."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from page_lightning.audit.ensemble import reference_ensemble, retrained_federation
from page_lightning.audit.exchangeability import SAME_PARAMETERS, audit, equal_to_no_op
from page_lightning.audit.lineage import model_sha256
from page_lightning.audit.queries import Queries
from page_lightning.audit.shadow import train_shadow
from page_lightning.configuration import class_config
from page_lightning.data.datamodule import FederatedGraphDataModule
from page_lightning.data.partition import summarise
from page_lightning.data.requests import UnlearningRequest
from page_lightning.errors import ConfigurationError
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.methods import NoOp, Retrain, UnlearningMethod
from page_lightning.report.report import Cost, Report, Row
from page_lightning.report.rows import RowJudge

LARGE_GRAPH = 50_000
"""Nodes from which two retrains are the default."""


@dataclass(frozen=True)
class AuditOptions:
    """The reference that a report is judged by.

    Args:
        retrains: federations that are retrained, and as many trained on everything, with fresh seeds. By default 8
            below 50,000 nodes and 2 above. Below 8 there are figures but no verdict; 0 switches the audit off.
    """

    retrains: int | None = None

    def size(self, graphs: ClientGraphs) -> int:
        """How many there are for some graphs.

        Raises:
            ConfigurationError: one retrain alone, or a negative number.
        """
        if self.retrains is None:
            return 8 if graphs.num_nodes < LARGE_GRAPH else 2
        if self.retrains < 0 or self.retrains == 1:
            message = f"audit.retrains is {self.retrains}; it must be 0 or at least 2"
            raise ConfigurationError(message)
        return self.retrains


class Stopwatch:
    """Wall and CPU seconds since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Seconds, CPU seconds."""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


NO_COST = Cost(None, None, 0, 0, 0, 0)


@dataclass(eq=False)
class Outcome:
    """A federation to judge, and where it comes from.

    Args:
        name: of its row.
        federation: the models.
        cost: what they took.
        config: ``class_path`` and ``init_args`` of the method.
        influenced: clients the method chose as influenced, with their similarities.
    """

    name: str
    federation: Federation
    cost: Cost = NO_COST
    config: Mapping[str, Any] = field(default_factory=lambda: {"class_path": "", "init_args": {}})
    influenced: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, method: UnlearningMethod, federation: Federation, watch: Stopwatch) -> Outcome:
        """What a finished method made and took."""
        seconds, cpu = watch.read()
        rounds = sum(phase.rounds for phase in method.phases(method.request))
        up, down = method.channel.total("up"), method.channel.total("down")
        cost = Cost(seconds, cpu, rounds, method.local_epochs, up, down, dict(method.phase_cpu_seconds))
        return cls(method.row_name, federation, cost, class_config(method), method.influenced)


def judge(
    outcomes: Sequence[Outcome],
    original: Federation,
    clients: ClientGraphs,
    retained: ClientGraphs,
    request: UnlearningRequest,
    datamodule: FederatedGraphDataModule,
    retrains: int,
    environment: dict[str, Any],
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Judge the original, no-op, Retrain and every outcome by the same figures.

    Args:
        outcomes: the method's first, then those of the compared methods.
        original: the trained federation.
        clients: graphs before the request.
        retained: graphs after it.
        request: what was forgotten.
        datamodule: gives names and the cache folder.
        retrains: size of the reference; 0 for none.
        environment: versions, seed and command.
        progress: called while the reference trains.
    """
    queries = Queries(clients, retained, request, original.server.num_hops, original.dtype)
    ensemble = shadow = retrain = None
    if retrains and queries.forgotten.any():
        cache = None if request.clients else datamodule.cache  # nothing of a leaver outlives its request
        ensemble = reference_ensemble(original, queries, request, retrains, cache, progress)
        shadow = train_shadow(original, queries)
        retrain = retrained_federation(original, ensemble)
    judge_row = RowJudge(queries, original, ensemble, retrain, shadow)
    parent = model_sha256(original)
    epochs = original.trained_rounds * original.recipe.local_epochs
    rows = [Row("original", "", {}, parent, None, None, None, None, judge_row.judge(original), NO_COST)]
    shown = [Outcome("no_op", original, config=class_config(NoOp()))]
    if retrain is not None and all(outcome.name != "retrain" for outcome in outcomes):
        able = sum(bool(count) for count in retained.count("train").tolist())
        cost = Cost(None, None, original.trained_rounds, epochs * able, 0, 0)
        shown.append(Outcome("retrain", retrain, cost, class_config(Retrain())))
    shown += [outcome for outcome in outcomes if outcome.name != "no_op"]
    for outcome, name in zip(shown, distinct_names(shown), strict=True):
        figures = judge_row.judge(outcome.federation)
        if figures.influence is None:
            same = figures.change < SAME_PARAMETERS
        else:
            same = equal_to_no_op(figures.change, figures.influence)
        rows.append(
            Row(
                name,
                outcome.config["class_path"],
                outcome.config["init_args"],
                model_sha256(outcome.federation),
                parent,
                None,
                same,
                outcome.influenced,
                figures,
                outcome.cost,
                None if ensemble is None else audit(ensemble.audit_input(queries, outcome.federation)),
            )
        )
    summary = summarise(datamodule.source, datamodule.assignment)
    return Report(
        data={
            "dataset": datamodule.source.name,
            "num_clients": clients.num_clients,
            "partitioner": type(datamodule.partitioner).__name__,
            "num_nodes": clients.num_nodes,
            "kept_edges": summary.kept_edges,
            "client_sizes": list(clients.sizes),
        },
        request={
            "kinds": sorted(request.kinds),
            "request_id": request.request_id,
            "clients": list(request.clients),
            "num_nodes": request.num_nodes,
            "num_edges": request.num_edges,
            "num_features": request.num_features,
        },
        query={
            "forgotten": "retained graph" if request.kinds == {"edge"} else "original graph",
            "retained": "retained graph",
        },
        rows=tuple(rows),
        environment=environment,
        judged_by=queries.judged_by,
        retrain_band=judge_row.retrain_band(),
    )


def distinct_names(outcomes: Sequence[Outcome]) -> list[str]:
    """Row names; methods of one name are told apart by the options in which they differ, equal ones by a number."""
    options = [dict(_flat(outcome.config["init_args"])) for outcome in outcomes]
    names: list[str] = []
    for outcome, own in zip(outcomes, options, strict=True):
        alike = [other for o, other in zip(outcomes, options, strict=True) if o.name == outcome.name]
        differ = [name for name, value in own.items() if any(other.get(name) != value for other in alike)]
        shown = ", ".join(own[name] if isinstance(own[name], str) else f"{name}={own[name]}" for name in differ)
        name = f"{outcome.name}({shown})" if shown else outcome.name
        number = sum(taken == name or taken.startswith(f"{name} #") for taken in names)
        names.append(f"{name} #{number + 1}" if number else name)
    return names


def _flat(options: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """Options by name; those of an option that is an object itself after a dot."""
    for name, value in options.items():
        if isinstance(value, dict) and "class_path" in value:
            yield within + name, value["class_path"].rpartition(".")[2]
            yield from _flat(value.get("init_args", {}), f"{within}{name}.")
        else:
            yield within + name, value


def environment(seed: int) -> dict[str, Any]:
    """Versions, seed and command line of this process."""
    packages = ("page-lightning", "torch", "lightning", "torch-geometric", "numpy")
    versions = {name: version(name) for name in packages} | {"python": platform.python_version()}
    return {"versions": versions, "seed": seed, "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])}
