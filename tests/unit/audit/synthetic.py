"""Logits of imagined federations: originals remember the forgotten nodes, retrained ones do not."""

import torch

from page_lightning.audit import AuditInput

N, C, FORGOTTEN, HELD_OUT = 220, 4, 30, 90


class World:
    """Models share a base and differ by their seeds: at each node, in class bias, in temperature."""

    def __init__(self, seed=0, memory=2.0):
        self.generator = torch.Generator().manual_seed(seed)
        self.memory = memory
        self.y = torch.randint(C, (N,), generator=self.generator)
        node = torch.arange(N)
        self.forgotten = node < FORGOTTEN
        self.held_out = (node >= FORGOTTEN) & (node < FORGOTTEN + HELD_OUT)
        self.retained = node >= FORGOTTEN + HELD_OUT
        self.base = self.normal(N, C)
        self.base[node, self.y] += 1 + 3 * self.retained

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.generator)

    def models(self, count, memory=0.0):
        """Logits ``[count, N, C]`` of models that remember the forgotten nodes by ``memory`` logits."""
        noise = 0.3 * self.normal(count, N, C) + 0.1 * self.normal(count, 1, C)
        logits = (self.base + noise) * (1 + 0.03 * self.normal(count, 1, 1))
        logits[:, self.forgotten, self.y[self.forgotten]] += memory
        return logits

    def target(self, kind, originals):
        """Logits of one model under test."""
        if kind == "no_op":
            return originals[0].clone()
        if kind in ("retrain", "half", "over"):
            return self.models(1, {"retrain": 0.0, "half": 0.5, "over": -1.0}[kind] * self.memory)[0]
        if kind == "random":
            return 0.1 * self.normal(N, C)
        if kind == "constant":
            return torch.eye(C)[0].expand(N, C).clone()
        if kind == "hotter":
            return originals[0] * 1.1
        if kind == "ascent":  # forgotten nodes driven beyond Retrain, everything else lost along with them
            logits = self.models(1, -2 * self.memory)[0]
            logits[~self.forgotten] = 0.3 * logits[~self.forgotten] + self.normal(int((~self.forgotten).sum()), C)
            return logits
        raise ValueError(kind)

    def input(self, kind, retrains=8, models=("global",)):
        """The audit of one kind of model."""
        original = {name: self.models(retrains, self.memory) for name in models}
        target = {name: self.target(kind, original[name]) for name in models}
        retrain = {name: self.models(retrains) for name in models}
        return AuditInput(target, retrain, original, self.y, self.forgotten, self.held_out, self.retained)
