"""One exact test per report: is the unlearned federation exchangeable with retrained ones?

If unlearning is perfect, the model under test is one more draw from the distribution of retrained models. Each of the
``R + 1`` federations is then measured by the ``R`` others, on every retained model (the global one, each client's
local one) with several statistics, and keeps its largest deviation in standard deviations of the others. By symmetry
the candidate's rank among the ``R + 1`` maxima is uniform: ``p = #{members >= candidate} / (R + 1)`` needs no
distribution and no correction for the number of statistics and models. The smallest level is ``1 / (R + 1)``, and it is
the level used: a candidate is flagged when its maximum exceeds all the others. One model's p value compares its own
largest deviation with the maxima of the whole report, so it is corrected too.

The same test applied to models trained on all data gives the power. Without power nothing is claimed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from page_lightning.audit.audit_input import AuditInput
from page_lightning.audit.outcome import Audit, AuditResult, Statistic, Verdict
from page_lightning.audit.residual_influence import ResidualInfluence, residual_influence
from page_lightning.audit.statistics import GroupStatistics, Role, group_statistics
from page_lightning.metrics.functional import phi

__all__ = ["Audit", "AuditInput", "AuditResult", "Statistic", "Verdict", "audit", "equal_to_no_op"]

MIN_RETRAINS = 8
"""Fewer retrained models give numbers but no verdict: the level would be above 1/9."""

MIN_POWER = 0.8
"""Share of originals the test must flag before it may call a model indistinguishable or residual."""

SAME_PARAMETERS = 1e-6
"""Relative parameter change below which a method did nothing."""


def audit(data: AuditInput) -> Audit:
    """Run the retrain-exchangeability audit.

    A flagged model is DAMAGED or RESIDUAL. A deviation is *harm* where accuracy on retained or held-out nodes is lower,
    or the loss there higher, than of every retrained **and every original** model: doing nothing can be worse than
    Retrain there (it keeps a poison), but not than the originals. Divergence from Retrain is no harm by itself: a model
    trained on for longer is surer of the same classes. A deviation is a *trace* where a statistic of the forgotten
    nodes moves to the side of the originals. The larger of the two names the verdict: a destroyed model lost the
    forgotten nodes along with all others; a fine-tuned one that drifted a little still holds them. A flag with neither
    (forgotten nodes driven beyond Retrain, where they stand out as well; a model that is only surer everywhere)
    is RESIDUAL. DAMAGED needs no power: it rests on what the model lost, not on what doing nothing would show.

    Args:
        data: logits and masks.
    """
    if not all(torch.isfinite(target).all() for target in data.target.values()):
        return _destroyed(data)
    found = {
        name: group_statistics(target, data.retrain[name], data.original[name], *data.nodes(name))
        for name, target in data.target.items()
    }
    deviation = {name: statistics.deviations() for name, statistics in found.items()}
    largest = torch.stack([each.abs().amax(2) for each in deviation.values()], 2)  # [B, R + 1, models]
    null = largest[:, 1:].amax(2)  # [B, R]
    beyond = largest[:, 0] > null.amax(1, keepdim=True)  # [B, models]
    at_least = (null[0, :, None] >= largest[0, 0]).sum(0)  # [models]
    p_values = [(1 + count) / (1 + data.retrains) for count in at_least.tolist()]
    powers = beyond[1:].double().mean(0).tolist()
    power = float(beyond[1:].any(1).double().mean())

    results, claims = [], []
    for i, (name, statistics) in enumerate(found.items()):
        outside = deviation[name][0, 0].abs() > null[0].max()
        claim = _harm_and_trace(statistics, deviation[name], outside)
        claims.append(claim)
        results.append(
            AuditResult(
                name,
                _verdict(bool(beyond[0, i]), *claim, powers[i], data.retrains),
                p_values[i],
                powers[i],
                data.retrains,
                _influence(data, name),
                _table(statistics, deviation[name], outside),
            )
        )
    harm, trace = (max(side) for side in zip(*claims, strict=True))
    verdict = _verdict(bool(beyond[0].any()), harm, trace, power, data.retrains)
    return Audit(results, verdict, min(p_values), power, data.retrains)


def _harm_and_trace(found: GroupStatistics, deviation: Tensor, outside: Tensor) -> tuple[float, float]:
    """Largest deviation of the model under test that is harm, and largest that is a trace; 0 where there is none."""
    mine, size = deviation[0, 0], deviation[0, 0].abs() * outside
    value, originals, retrained = found.values[0, 0], found.values[1:, 0], found.values[1:, 1:].mean(1)
    lost = found.having(Role.KEPT_LESS) & (mine < 0) & (value < originals.amin(0))
    dearer = found.having(Role.KEPT_MORE) & (mine > 0) & (value > originals.amax(0))
    trace = found.having(Role.TRACE) & (mine * (originals - retrained).mean(0) > 0)
    return float((size * (lost | dearer)).max()), float((size * trace).max())


def _destroyed(data: AuditInput) -> Audit:
    """The outcome for a federation whose answers are not even finite numbers: no statistic is needed."""
    nothing, least = ResidualInfluence(None, None, None), 1 / (1 + data.retrains)
    verdict = Verdict.DAMAGED if data.retrains >= MIN_RETRAINS else Verdict.INCONCLUSIVE
    results = [AuditResult(name, verdict, least, 0.0, data.retrains, nothing, {}) for name in data.target]
    return Audit(results, verdict, least, 0.0, data.retrains)


def _verdict(flagged: bool, harm: float, trace: float, power: float, retrains: int) -> Verdict:
    if retrains < MIN_RETRAINS:
        return Verdict.INCONCLUSIVE
    if flagged and harm > trace:
        return Verdict.DAMAGED
    if power < MIN_POWER:
        return Verdict.INCONCLUSIVE
    return Verdict.RESIDUAL if flagged else Verdict.INDISTINGUISHABLE


def _influence(data: AuditInput, name: str) -> ResidualInfluence:
    y, forgotten, held_out, _ = data.nodes(name)
    target, retrain, original = (phi(part[name], y) for part in (data.target, data.retrain, data.original))
    return residual_influence(target, retrain, original, forgotten, held_out)


def _table(found: GroupStatistics, deviation: Tensor, outside: Tensor) -> dict[str, Statistic]:
    columns = (
        found.values[0, 0].tolist(),
        found.values[0, 1:].mean(0).tolist(),
        found.values[1:, 0].mean(0).tolist(),
        deviation[0, 0].tolist(),
        outside.tolist(),
    )
    return {name: Statistic(*row) for name, *row in zip(found.roles, *columns, strict=True)}


def equal_to_no_op(relative_parameter_change: float, influence: ResidualInfluence) -> bool:
    """Whether a method did nothing, as far as can be told.

    Args:
        relative_parameter_change: ``|model - original| / |original|``.
        influence: its residual influence.

    Returns:
        True where the parameters hardly moved, or the interval of the residual influence contains 1 and not 0: one that
        contains both cannot tell no-op from Retrain.
    """
    if relative_parameter_change < SAME_PARAMETERS:
        return True
    return influence.contains(1.0) and not influence.contains(0.0)
