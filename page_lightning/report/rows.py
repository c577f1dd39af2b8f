"""The figures of one row of a report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from page_lightning.audit.ensemble import ReferenceEnsemble
from page_lightning.audit.queries import GLOBAL, Queries
from page_lightning.audit.residual_influence import ResidualInfluence, residual_influence
from page_lightning.audit.shadow import ShadowAttack
from page_lightning.federation.federation import Federation
from page_lightning.metrics.classification import ClientClassification
from page_lightning.metrics.functional import (
    accuracy,
    agreement,
    auc_interval,
    class_matched_non_edges,
    ensemble_floor,
    jensen_shannon,
    kl,
    lira_z,
    mean_z,
    parameter_distance,
    phi,
    posterior_correlation,
    probability_shift,
    rank_auc,
    recovered_accuracy,
    relative_log_likelihood,
    relative_parameter_change,
    rmia,
    rms_z,
    t_lr,
    tpr_at_fpr,
    tug_of_war,
)


@dataclass(frozen=True)
class Measure:
    """A figure with its interval and its floor among retrained models, where they are defined.

    Args:
        value: the figure.
        low: lower end of a 95 % bootstrap interval over nodes.
        high: upper end.
        floor: what two retrained models give.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    floor: float | None = None


@dataclass(frozen=True, eq=False)
class RowFigures:
    """All figures of a row.

    Args:
        metrics: by name.
        influence: residual influence of the models that head the table; none without an ensemble.
        change: relative change of their parameters from the original's.
        client_accuracy: test accuracy of each client, ``K`` numbers; NaN for a departed one.
        lira_scores: calibrated scores of forgotten and of held-out nodes, for the ROC curve.
    """

    metrics: dict[str, Measure]
    influence: ResidualInfluence | None
    change: float
    client_accuracy: list[float]
    lira_scores: tuple[Tensor, Tensor] | None = field(repr=False, default=None)


class RowJudge:
    """Judges federations by the models that head the table (:attr:`Queries.judged_by`).

    Args:
        queries: node sets and graphs.
        original: the trained federation.
        ensemble: the reference; without one only accuracies and distances to the original are known.
        retrain: a retrained federation, for distances between parameters.
        shadow: the paper's attack.
    """

    def __init__(
        self,
        queries: Queries,
        original: Federation,
        ensemble: ReferenceEnsemble | None = None,
        retrain: Federation | None = None,
        shadow: ShadowAttack | None = None,
    ) -> None:
        self.queries, self.original, self.ensemble, self.shadow = queries, original, ensemble, shadow
        self.retrain = retrain
        self.y = queries.clients.y
        self._before = self._answers(original)
        if ensemble is not None:
            is_global = queries.judged_by == GLOBAL
            self._retrain = ensemble.retrain[GLOBAL] if is_global else ensemble.retrain_local
            self._trained = ensemble.original[GLOBAL] if is_global else ensemble.original_local

        self._pairs = self._edges_and_non_edges() if queries.edges.numel() else None

    def _edges_and_non_edges(self) -> tuple[Tensor, Tensor]:
        """Forgotten edges, and as many pairs that join the same classes of the same client and are no edges."""
        clients = self.queries.clients
        kind = clients.client * clients.num_classes + self.y
        return self.queries.edges, class_matched_non_edges(self.queries.edges, clients.edge_index, kind)

    def _recovered(self, logits: Tensor) -> Measure:
        test = self.queries.kept_test

        def right(answers: Tensor) -> Tensor:
            return answers[..., test, :].argmax(-1) == self.y[test]

        found = recovered_accuracy(right(logits), right(self._before), right(self._retrain), right(self._trained))
        return Measure(found.value, found.low, found.high)

    def _answers(self, federation: Federation) -> Tensor:
        if self.queries.judged_by == GLOBAL:
            return self.queries.logits(federation)[GLOBAL]
        return self.queries.local(federation)

    def judge(self, federation: Federation) -> RowFigures:
        """All figures of a federation."""
        logits = self._answers(federation)
        metrics, per_client = self._utility(logits)
        forgotten, held_out = self.queries.forgotten, self.queries.held_out
        metrics["forgotten_accuracy"] = Measure(_number(accuracy(logits[forgotten], self.y[forgotten])))
        shift = probability_shift(self._before, logits)
        metrics["deletion_detectability"] = _area(shift[forgotten], shift[held_out])
        influence, scores = None, None
        if self._pairs is not None:
            metrics["link_auc"] = _area(*(posterior_correlation(logits, pairs) for pairs in self._pairs))
        if self.ensemble is not None:
            metrics |= self._distances(logits, self._retrain)
            attacks, influence, scores = self._attacks(logits, self._retrain)
            metrics |= attacks
            if self.queries.request.undoes_poison:
                metrics["recovered"] = self._recovered(logits)
        if self.shadow is not None:
            score = self.shadow.scores(logits)
            outside = self.shadow.non_members
            metrics["shadow_auc"] = _area(score[forgotten], score[outside])
            control = self.shadow.control
            metrics["shadow_control_auc"] = _area(score[control], score[outside & ~control])
        mine, start = self._parameters(federation), self._parameters(self.original)
        if self.retrain is not None:
            metrics["parameter_distance"] = Measure(
                _number(parameter_distance(mine, self._parameters(self.retrain), start))
            )
        change = float(relative_parameter_change(mine, start))
        return RowFigures(metrics, influence, change, per_client, scores)

    def retrain_band(self) -> dict[str, tuple[float, float]]:
        """Least and greatest accuracy among the retrained models, by metric name; empty without an ensemble."""
        if self.ensemble is None:
            return {}
        forgotten, y = self.queries.forgotten, self.y[self.queries.forgotten]
        values = {
            "forgotten_accuracy": [_number(accuracy(member[forgotten], y)) for member in self._retrain],
            "retained_accuracy": [self._utility(member)[0]["retained_accuracy"].value for member in self._retrain],
        }
        known = {name: [value for value in found if value is not None] for name, found in values.items()}
        return {name: (min(found), max(found)) for name, found in known.items() if found}

    def _parameters(self, federation: Federation) -> Mapping[str, Tensor]:
        if self.queries.judged_by == GLOBAL:
            return federation.server_state()
        return federation.client_state([k for k, size in enumerate(self.queries.retained.sizes) if size])

    def _utility(self, logits: Tensor) -> tuple[dict[str, Measure], list[float]]:
        clients, test = self.queries.clients, self.queries.kept_test
        metric = ClientClassification(self.queries.retained.sizes, clients.num_classes, auroc=True).to(logits.device)
        metric.update(logits[test], self.y[test], clients.client[test])
        found = {name: Measure(_number(value)) for name, value in metric.compute().items()}
        names = {"accuracy": "retained_accuracy", "macro_f1": "macro_f1", "auroc": "auroc"}
        return {names[name]: value for name, value in found.items()}, metric.per_client()["accuracy"].tolist()

    def _distances(self, logits: Tensor, reference: Tensor) -> dict[str, Measure]:
        q = self.queries
        sets = {"forgotten": q.forgotten, "retained": q.kept_train | q.kept_test}
        found = {}
        for name, measure in (("kl", kl), ("js", jensen_shannon), ("agreement", agreement)):
            for where, nodes in sets.items():
                if (name, where) == ("js", "retained"):
                    continue
                value = _number(measure(reference[:, nodes], logits[nodes]).mean())
                floor = _number(ensemble_floor(measure, reference[:, nodes]).mean()) if len(reference) > 1 else None
                found[f"{name}_{where}"] = Measure(value, floor=floor)
        three = [q.forgotten, q.kept_train, q.kept_test]
        found["tug_of_war"] = Measure(_number(tug_of_war(logits, reference, self.y, three)))
        return found

    def _attacks(
        self, logits: Tensor, reference: Tensor
    ) -> tuple[dict[str, Measure], ResidualInfluence | None, tuple[Tensor, Tensor] | None]:
        compared = self.queries.forgotten | self.queries.held_out
        forgotten, held_out = self.queries.forgotten[compared], self.queries.held_out[compared]
        if not forgotten.any() or not held_out.any():
            return {}, None, None
        y = self.y[compared]
        steady = self.queries.steady[compared]
        own, retrain, trained = (phi(each[..., compared, :].double(), y) for each in (logits, reference, self._trained))
        z = lira_z(own, retrain)
        inside, outside = z[forgotten], z[held_out]
        found = {
            "lira_auc": _area(inside, outside),
            "lira_tpr5": Measure(_number(tpr_at_fpr(inside, outside))),
            "mean_z": Measure(_number(mean_z(z, forgotten, steady if steady.any() else None))),
            "rms_z": Measure(_number(rms_z(z, forgotten))),
            "loss_auc": _area(own[forgotten], own[held_out]),
        }
        beaten = rmia(relative_log_likelihood(logits[compared], reference[:, compared], y), held_out)
        found["rmia_auc"] = _area(beaten[forgotten], beaten[held_out])
        influence = None
        if len(retrain) > 1 and len(trained) > 1:
            found["t_lr"] = Measure(_number(t_lr(own, retrain, trained)[forgotten].mean()))
            influence = residual_influence(own, retrain, trained, forgotten, steady)
        return found, influence, (inside, outside)


def _area(positive: Tensor, negative: Tensor) -> Measure:
    if not positive.numel() or not negative.numel() or positive.isnan().any() or negative.isnan().any():
        return Measure(None)
    low, high = auc_interval(positive, negative)
    return Measure(_number(rank_auc(positive, negative)), low, high)


def _number(value: Tensor) -> float | None:
    number = float(value)
    return None if math.isnan(number) else number


__all__ = ["Measure", "RowFigures", "RowJudge"]
