"""Serial numbers: what a model is, as a hash."""

from __future__ import annotations

import hashlib

import numpy as np

from page_lightning.federation.federation import Federation


def model_sha256(federation: Federation) -> str:
    """SHA-256 over name, data type, shape and little-endian bytes of every parameter and buffer, in order of name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(federation.state_dict().items()):
        array = np.ascontiguousarray(tensor.detach().cpu().numpy())
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()
