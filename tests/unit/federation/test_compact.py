"""First-layer rows held once: round trips and averages against brute force."""

import pytest
import torch

from page_lightning.federation.compact import CompactRows

CLIENTS, WORDS = 3, 5
PAIRS = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [0, 2, 0, 1, 2, 2, 2]])  # word 2: everybody; 3 and 4: nobody; one twice


@pytest.fixture
def compact():
    return CompactRows.from_words(*PAIRS, CLIENTS, WORDS)


@pytest.fixture
def stacked():
    generator = torch.Generator().manual_seed(0)
    stacked = torch.randn(WORDS, 2, dtype=torch.float64, generator=generator).repeat(CLIENTS, 1, 1)
    for client, word in PAIRS.t().tolist():
        stacked[client, word] = torch.randn(2, dtype=torch.float64, generator=generator)
    return stacked


def test_holds_one_row_a_pair_and_one_a_word(compact):
    assert compact.num_rows == 6 + WORDS


def test_round_trips(compact, stacked):
    held = compact.compress(stacked)
    assert held.shape == (compact.num_rows, 2)
    assert compact.expand(held).equal(stacked)
    used = torch.ones(compact.num_rows, dtype=torch.bool)
    used[6 + 2] = False  # the phantom's row of a word that every client has stands for nobody
    assert compact.compress(compact.expand(held))[used].equal(held[used])


def test_broadcast_gives_every_client_the_model(compact, stacked):
    assert compact.expand(compact.broadcast(stacked[0])).equal(stacked[:1].expand(CLIENTS, -1, -1))


@pytest.mark.parametrize("weights", [[0.5, 0.3, 0.2], [0.0, 1.0, 0.0], [1.0, 2.0, 3.0]])
def test_average_equals_brute_force(compact, stacked, weights):
    weights = torch.tensor(weights, dtype=torch.float64)
    average = compact.average(compact.compress(stacked), compact.average_weights(weights))
    torch.testing.assert_close(average, torch.tensordot(weights, stacked, 1))
