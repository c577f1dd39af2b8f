"""The retrain-exchangeability audit: could this model have come from training without the forgotten data?"""

from page_lightning.audit.audit_input import AuditInput
from page_lightning.audit.exchangeability import audit, equal_to_no_op
from page_lightning.audit.outcome import Audit, AuditResult, Statistic, Verdict
from page_lightning.audit.residual_influence import ResidualInfluence, residual_influence

__all__ = [
    "Audit",
    "AuditInput",
    "AuditResult",
    "ResidualInfluence",
    "Statistic",
    "Verdict",
    "audit",
    "equal_to_no_op",
    "residual_influence",
]
