"""Second-order information of every client's loss at once: gradients, Hessian-vector products, linear solves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from page_lightning.backbones.base import Backbone
from page_lightning.federation.graphs import ClientGraphs

Product = Callable[[Tensor], Tensor]
"""A matrix for each client applied to its own row: ``[U, P] -> [U, P]``."""


class ClientLoss:
    """``sum_u weight_u sum_v CE_v + ridge_u / 2 |theta_u|^2`` over some nodes of each client, without dropout.

    Models are stacked, so that one backward pass gives every client's own gradient; vectors are ``[U, P]``, a row for
    each client, in double precision.

    Args:
        backbone: a built backbone.
        models: the clients' models, ``[U, ...]`` by name.
        graphs: ``U`` clients.
        nodes: which nodes count, bool ``[N]``.
        weight: of each client's sum, ``[U]``; by default one.
        ridge: of each client, ``[U]``; by default zero.
    """

    def __init__(
        self,
        backbone: Backbone,
        models: Mapping[str, Tensor],
        graphs: ClientGraphs,
        nodes: Tensor,
        weight: Tensor | None = None,
        ridge: Tensor | None = None,
    ) -> None:
        self.backbone = backbone
        self.names = [name for name, _ in backbone.named_parameters()]
        self.parameters = [models[name].detach().double().requires_grad_() for name in self.names]
        buffers = {name: models[name] for name, _ in backbone.named_buffers() if name in models}
        self.buffers = {name: b.double() if b.is_floating_point() else b for name, b in buffers.items()}
        self.flow = graphs.flow_at(nodes, backbone.num_hops, torch.float64)
        self.labels = graphs.y[self.flow.target_index]
        client = graphs.client[self.flow.target_index]
        self.node_weight = torch.ones(len(client), dtype=torch.float64, device=graphs.device)
        if weight is not None:
            self.node_weight = weight.double().to(graphs.device)[client]
        self.ridge = ridge
        self._gradient: tuple[Tensor, ...] | None = None

    def value(self) -> Tensor:
        """The loss, a scalar with a graph."""
        loss = self.parameters[0].sum() * 0
        if len(self.labels):
            model = dict(zip(self.names, self.parameters, strict=True))
            logits = functional_call(self.backbone, {**model, **self.buffers}, (self.flow,))[1]
            loss = loss + F.cross_entropy(logits, self.labels, reduction="none") @ self.node_weight
        if self.ridge is not None:
            squares = torch.stack([p.flatten(1).square().sum(1) for p in self.parameters]).sum(0)
            loss = loss + self.ridge.to(squares) @ squares / 2
        return loss

    def _gradients(self) -> tuple[Tensor, ...]:
        if self._gradient is None:
            with torch.enable_grad():
                value = self.value()
                self._gradient = torch.autograd.grad(value, self.parameters, create_graph=True, materialize_grads=True)
        return self._gradient

    def gradient(self) -> Tensor:
        """Each client's own gradient ``[U, P]``."""
        return flatten(self._gradients()).detach()

    def hessian_product(self, vectors: Tensor) -> Tensor:
        """Each client's own Hessian times its own vector, ``[U, P]``; the graph of the gradient is built once."""
        parts = self.split(vectors)
        products = torch.autograd.grad(self._gradients(), self.parameters, parts, retain_graph=True, allow_unused=True)
        return flatten(
            [torch.zeros_like(p) if h is None else h for h, p in zip(products, self.parameters, strict=True)]
        )

    def split(self, vectors: Tensor) -> list[Tensor]:
        """Rows ``[U, P]`` as tensors shaped like the parameters."""
        sizes = [p[0].numel() for p in self.parameters]
        parts = torch.split(vectors.double(), sizes, 1)
        return [part.reshape(p.shape) for part, p in zip(parts, self.parameters, strict=True)]

    def models(self) -> Tensor:
        """The models themselves ``[U, P]``."""
        return flatten([p.detach() for p in self.parameters])


def flatten(parts: tuple[Tensor, ...] | list[Tensor]) -> Tensor:
    """Tensors ``[U, ...]`` as rows ``[U, P]``."""
    return torch.cat([part.flatten(1) for part in parts], 1)


@dataclass(frozen=True, eq=False)
class Solution:
    """What a solver found for each client.

    Args:
        x: ``[U, P]``.
        residual: ``|b - (H + damping) x| / |b|``, ``[U]``; zero where ``b`` is.
        damping: as it was in the end, ``[U]``.
        products: Hessian-vector products taken.
    """

    x: Tensor
    residual: Tensor
    damping: Tensor
    products: int


def largest_eigenvalue(product: Product, like: Tensor, iterations: int = 30) -> Tensor:
    """Each client's largest Hessian eigenvalue in magnitude by power iteration, ``[U]``.

    Args:
        product: Hessian-vector products.
        like: ``[U, P]``.
        iterations: products to take.
    """
    draws = torch.Generator(like.device).manual_seed(0)
    vector = torch.randn(like.shape, generator=draws, dtype=torch.float64, device=like.device)
    value = torch.zeros(len(like), dtype=torch.float64, device=like.device)
    for _ in range(iterations):
        vector = vector / vector.norm(dim=1, keepdim=True).clamp(min=1e-300)
        image = product(vector)
        value, vector = (vector * image).sum(1).abs(), image
    return value


def conjugate_gradient(
    product: Product, b: Tensor, damping: Tensor, iterations: int = 50, tolerance: float = 1e-5
) -> Solution:
    """Solve ``(H_u + damping_u) x_u = b_u`` for every client at once, each with step lengths of its own.

    Where a client's curvature turns out not to be positive, its damping is raised tenfold and it starts again.

    Args:
        product: Hessian-vector products.
        b: ``[U, P]``.
        damping: ``[U]``.
        iterations: at most, in each attempt.
        tolerance: relative residual at which a client is done.
    """
    damping, products = damping.double().clone(), 0
    size = b.norm(dim=1)
    goal = tolerance * size
    for _ in range(8):
        x, r = torch.zeros_like(b), b.clone()
        p, rr = r.clone(), r.square().sum(1)
        indefinite = torch.zeros_like(size, dtype=torch.bool)
        for _ in range(iterations):
            active = (rr.sqrt() > goal) & ~indefinite
            if not bool(active.any()):
                break
            image = product(p) + damping.unsqueeze(1) * p
            products += 1
            curvature = (p * image).sum(1)
            indefinite |= active & ~(curvature > 0)
            active &= ~indefinite
            step = torch.where(active, rr / torch.where(active, curvature, 1.0), 0.0).unsqueeze(1)
            x, r = x + step * p, r - step * image
            new = torch.where(active, r.square().sum(1), rr)
            p = torch.where(active.unsqueeze(1), r + (new / rr.clamp(min=1e-300)).unsqueeze(1) * p, p)
            rr = new
        if not bool(indefinite.any()):
            break
        floor = 1e-3 * damping.max().clamp(min=1e-6)
        damping = torch.where(indefinite, 10 * damping.clamp(min=float(floor)), damping)
    residual = torch.where(size > 0, rr.sqrt() / size.clamp(min=1e-300), 0.0)
    return Solution(x, residual, damping, products)


def lissa(product: Product, b: Tensor, scale: Tensor, damping: Tensor, iterations: int = 100) -> Solution:
    """The same by the truncated Neumann series: ``h <- b + (1 - damping / scale) h - H h / scale``, ``x = h / scale``.

    Stable where the largest eigenvalue is below ``2 * scale - damping``.

    Args:
        product: Hessian-vector products.
        b: ``[U, P]``.
        scale: ``[U]``.
        damping: ``[U]``.
        iterations: products to take.
    """
    by, keep = scale.unsqueeze(1), (1 - damping / scale).unsqueeze(1)
    h = b.clone()
    for _ in range(iterations):
        h = b + keep * h - product(h) / by
    x = h / by
    left = b - product(x) - damping.unsqueeze(1) * x
    size = b.norm(dim=1)
    residual = torch.where(size > 0, left.norm(dim=1) / size.clamp(min=1e-300), 0.0)
    return Solution(x, residual, damping, iterations + 1)
