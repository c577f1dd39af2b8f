"""torchmetrics classes, each a thin shell over a function."""

from page_lightning.metrics.classification import ClientClassification, grouped_auroc

__all__ = ["ClientClassification", "grouped_auroc"]
