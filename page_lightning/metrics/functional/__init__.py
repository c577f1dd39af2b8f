"""Pure functions of tensors behind every figure of a report.

Shapes: ``M`` models, ``R`` retrained models, ``N`` nodes, ``C`` classes; leading dimensions ``..`` are batched over.
Sets of nodes (``forgotten``, ``held_out``) are boolean masks ``[N]`` or int64 positions.
"""

from page_lightning.metrics.functional.deletion import deletion_detectability, probability_shift
from page_lightning.metrics.functional.distance import (
    accuracy,
    accuracy_gap,
    agreement,
    cross_entropy,
    ensemble_floor,
    jensen_shannon,
    kl,
    loss_gap,
    pairwise_kl,
    parameter_distance,
    relative_parameter_change,
    tug_of_war,
)
from page_lightning.metrics.functional.likelihood import (
    leave_one_out_moments,
    lira_auc,
    lira_z,
    mean_z,
    moments,
    phi,
    rms_z,
    t_lr,
)
from page_lightning.metrics.functional.links import class_matched_non_edges, link_auc, posterior_correlation
from page_lightning.metrics.functional.ranking import auc_interval, hanley_mcneil_se, rank_auc, tpr_at_fpr
from page_lightning.metrics.functional.recovery import Recovery, recovered_accuracy
from page_lightning.metrics.functional.rmia import relative_log_likelihood, rmia
from page_lightning.metrics.functional.shadow import ShadowControl, fit_shadow_attack, shadow_attack, shadow_control

__all__ = [
    "Recovery",
    "ShadowControl",
    "accuracy",
    "accuracy_gap",
    "agreement",
    "auc_interval",
    "class_matched_non_edges",
    "cross_entropy",
    "deletion_detectability",
    "ensemble_floor",
    "fit_shadow_attack",
    "hanley_mcneil_se",
    "jensen_shannon",
    "kl",
    "leave_one_out_moments",
    "link_auc",
    "lira_auc",
    "lira_z",
    "loss_gap",
    "mean_z",
    "moments",
    "pairwise_kl",
    "parameter_distance",
    "phi",
    "posterior_correlation",
    "probability_shift",
    "rank_auc",
    "recovered_accuracy",
    "relative_log_likelihood",
    "relative_parameter_change",
    "rmia",
    "rms_z",
    "shadow_attack",
    "shadow_control",
    "t_lr",
    "tpr_at_fpr",
    "tug_of_war",
]
