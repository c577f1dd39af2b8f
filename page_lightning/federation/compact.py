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
    """

    client: Tensor
    word: Tensor
    num_clients: int
    num_words: int

    @classmethod
    def from_words(cls, client: Tensor, word: Tensor, num_clients: int, num_words: int) -> CompactRows:
        """Collect the pairs from the (client, word) of every non-zero feature."""
        code = torch.unique(client * num_words + word)
        return cls(code // num_words, code % num_words, num_clients, num_words)

    @property
    def num_rows(self) -> int:
        """``R = P + F``."""
        return len(self.word) + self.num_words

    @cached_property
    def row_of(self) -> Tensor:
        """The row that holds a client's word, int64 ``[K, F]``."""
        phantom = torch.arange(len(self.word), self.num_rows, device=self.word.device)
        row = phantom.repeat(self.num_clients, 1)
        row[self.client, self.word] = torch.arange(len(self.word), device=self.word.device)
        return row

    @cached_property
    def _all_words(self) -> Tensor:
        return torch.cat([self.word, torch.arange(self.num_words, device=self.word.device)])

    @cached_property
    def _place_of(self) -> Tensor:
        absent = self.row_of >= len(self.word)
        witness = absent.to(torch.int8).argmax(0)  # a client that lacks the word; 0 where every client has it
        client = torch.cat([self.client, witness])
        return client * self.num_words + self._all_words

    def broadcast(self, shared: Tensor) -> Tensor:
        """``[R, o]`` from one model's ``[F, o]``."""
        return shared.index_select(0, self._all_words)

    def compress(self, stacked: Tensor) -> Tensor:
        """``[R, o]`` from ``[K, F, o]``; loses nothing where clients agree on the words they lack."""
        return stacked.reshape(-1, stacked.shape[-1]).index_select(0, self._place_of)

    def expand(self, compact: Tensor) -> Tensor:
        """``[K, F, o]`` from ``[R, o]``."""
        chosen = compact.index_select(0, self.row_of.reshape(-1))
        return chosen.view(self.num_clients, self.num_words, compact.shape[-1])

    @cached_property
    def _by_word(self) -> SparseMatrix:
        order = torch.argsort(self._all_words, stable=True)
        pointer = F.pad(torch.bincount(self._all_words, minlength=self.num_words).cumsum(0), (1, 0))
        return SparseMatrix(pointer, order, torch.ones_like(order), self.num_rows)

    def average_weights(self, weights: Tensor) -> Tensor:
        """The share of each row in the weighted sum over clients, ``[R]``, from ``weights`` ``[K]``."""
        pairs = weights.index_select(0, self.client)
        rest = weights.sum() - weights.new_zeros(self.num_words).index_add_(0, self.word, pairs)
        return torch.cat([pairs, rest])

    def average(self, compact: Tensor, row_weights: Tensor) -> Tensor:
        """``sum_k weights[k] stacked[k]`` as ``[F, o]``, without expanding.

        Args:
            compact: ``[R, o]``.
            row_weights: from :meth:`average_weights`.
        """
        by_word = self._by_word
        return spmm(by_word, row_weights.index_select(0, by_word.column), compact)
