"""Reading the files that ``fit`` writes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from page_lightning.errors import CheckpointMismatchError


def read_checkpoint(path: str | Path, option: str = "ckpt_path", part: str = "federation") -> dict[str, Any]:
    """Load a federation's checkpoint to the CPU, weights only.

    Args:
        path: the file.
        option: the option to name in the error.
        part: what it must hold: ``federation`` from ``fit`` and ``unlearn``, ``unlearning`` from a method's rounds.

    Raises:
        CheckpointMismatchError: it is missing, truncated, or was not written by page-lightning.
    """
    if not Path(path).is_file():
        message = f"{option} {path}: no such file"
        raise CheckpointMismatchError(message)
    try:
        checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        known = part in checkpoint
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError, pickle.UnpicklingError) as error:
        message = f"{option} {path}: not a checkpoint, or damaged ({type(error).__name__})"
        raise CheckpointMismatchError(message) from error
    if not known:
        message = f"{option} {path}: holds no {part} by page-lightning"
        raise CheckpointMismatchError(message)
    return checkpoint
