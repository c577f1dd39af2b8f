"""page-lightning: federated graph learning that can forget."""

__version__ = "0.1.0"
