"""First-layer weights of bag-of-words models, held once wherever no client tells them apart.

A row of the first weight matrix whose word never occurs on a client gets no data gradient there. Under an element-wise
optimizer it then moves as a function of its common start alone, and is the same on every such client. So a stack
``[K, F, o]`` is held as ``[R, o]``: one row per (client, word) pair that occurs, then ``F`` rows of a phantom client
without data that stands for all others. Exact for any element-wise optimizer and regulariser.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from page_lightning.federation.sparse import SparseMatrix, spmm


@dataclass(frozen=True, eq=False)
class CompactRows:
    """The map between ``[K, F, o]`` and ``[R, o]``.

    Args:
        client: of each pair that occurs, int64 ``[P]``, sorted.
        word: of each pair that occurs, int64 ``[P]``.
        num_clients: ``K``.
        num_words: ``F``.
        num_groups: ``G`` federations of ``K / G`` consecutive clients each, with a phantom client of their own.
    """

    client: Tensor
    word: Tensor
    num_clients: int
    num_words: int
    num_groups: int = 1

    @classmethod
    def from_words(
        cls, client: Tensor, word: Tensor, num_clients: int, num_words: int, num_groups: int = 1
    ) -> CompactRows:
        """Collect the pairs from the (client, word) of every non-zero feature."""
        code = torch.unique(client * num_words + word)
        return cls(code // num_words, code % num_words, num_clients, num_words, num_groups)

    @property
    def num_rows(self) -> int:
        """``R = P + G F``."""
        return len(self.word) + self.num_groups * self.num_words

    def _first_word_of(self, client: Tensor) -> Tensor:
        return client // (self.num_clients // self.num_groups) * self.num_words

    @cached_property
    def row_of(self) -> Tensor:
        """The row that holds a client's word, int64 ``[K, F]``."""
        device = self.word.device
        first = len(self.word) + self._first_word_of(torch.arange(self.num_clients, device=device))
        row = first[:, None] + torch.arange(self.num_words, device=device)
        row[self.client, self.word] = torch.arange(len(self.word), device=device)
        return row

    @cached_property
    def _all_words(self) -> Tensor:
        """The word behind each row, counted through all groups."""
        phantom = torch.arange(self.num_groups * self.num_words, device=self.word.device)
        return torch.cat([self._first_word_of(self.client) + self.word, phantom])

    @cached_property
    def _lacks(self) -> Tensor:
        """Whether a client lacks a word, bool ``[G, K / G, F]``."""
        members = self.num_clients // self.num_groups
        return (self.row_of >= len(self.word)).view(self.num_groups, members, self.num_words)

    @cached_property
    def _place_of(self) -> Tensor:
        """Where each row is found in ``[K F, o]``; a phantom one where some client lacks the word, if any does."""
        members = self.num_clients // self.num_groups
        witness = self._lacks.to(torch.int8).argmax(1)
        witness += torch.arange(self.num_groups, device=self.word.device)[:, None] * members
        word = torch.arange(self.num_words, device=self.word.device)
        return torch.cat([self.client * self.num_words + self.word, (witness * self.num_words + word).reshape(-1)])

    def broadcast(self, shared: Tensor) -> Tensor:
        """``[R, o]`` from one model's ``[F, o]``, or from one per group ``[G, F, o]``."""
        return shared.reshape(-1, shared.shape[-1]).index_select(0, self._all_words)

    def compress(self, stacked: Tensor) -> Tensor:
        """``[R, o]`` from ``[K, F, o]``; loses nothing where clients agree on the words they lack."""
        return stacked.reshape(-1, stacked.shape[-1]).index_select(0, self._place_of)

    def expand(self, compact: Tensor) -> Tensor:
        """``[K, F, o]`` from ``[R, o]``."""
        chosen = compact.index_select(0, self.row_of.reshape(-1))
        return chosen.view(self.num_clients, self.num_words, compact.shape[-1])

    @cached_property
    def _by_word(self) -> SparseMatrix:
        words = self.num_groups * self.num_words
        order = torch.argsort(self._all_words, stable=True)
        pointer = F.pad(torch.bincount(self._all_words, minlength=words).cumsum(0), (1, 0))
        return SparseMatrix(pointer, order, torch.ones_like(order), self.num_rows)

    def average_weights(self, weights: Tensor) -> Tensor:
        """The share of each row in the weighted sum over a group's clients, ``[R]``, from ``weights`` ``[K]``."""
        pairs = weights.index_select(0, self.client)
        total = weights.view(self.num_groups, -1).sum(1).repeat_interleave(self.num_words)
        rest = total.index_add(0, self._all_words[: len(pairs)], -pairs)
        return torch.cat([pairs, rest * self._lacks.any(1).reshape(-1)])  # a row of nobody counts exactly nothing

    def average(self, compact: Tensor, row_weights: Tensor) -> Tensor:
        """``sum_k weights[k] stacked[k]`` as ``[F, o]``, or ``[G, F, o]`` over each group, without expanding.

        Args:
            compact: ``[R, o]``.
            row_weights: from :meth:`average_weights`.
        """
        by_word = self._by_word
        result = spmm(by_word, row_weights.index_select(0, by_word.column), compact)
        return result if self.num_groups == 1 else result.view(self.num_groups, self.num_words, -1)
