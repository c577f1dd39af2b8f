"""Dropout masks: rates, independence of clients, restarts."""

import pytest
import torch

from page_lightning.federation.randomness import DropoutStream, stream_key


@pytest.mark.parametrize("probability", [0.25, 0.5, 0.1, 0.37])
def test_drops_at_the_asked_rate(probability):
    keep = DropoutStream((0, 0), (0, 1)).keep((3000, 1000), 101, probability)
    assert keep.shape == (4000, 101)
    deviation = (probability * (1 - probability) / keep.numel()) ** 0.5
    assert abs((~keep).double().mean().item() - probability) < 4 * deviation + 1 / 65536


def test_rates_are_exact_up_to_the_size_of_a_random_word():
    """All 256 bytes, and all 65536 double bytes, against the threshold."""

    class EveryWord(DropoutStream):
        def _buffer(self, sizes, words):
            kind = torch.uint8 if self.byte else torch.int16
            count = 256 if self.byte else 65536
            values = torch.arange(count).to(kind) if self.byte else (torch.arange(count) - 32768).to(kind)
            return values.view(torch.int64).view(1, -1), []

    stream = EveryWord((0,), ())
    stream.byte = True
    assert (~stream.keep((1,), 256, 0.5)).sum() == 128
    assert (~stream.keep((1,), 256, 0.75)).sum() == 192
    stream.byte = False
    assert (~stream.keep((1,), 65536, 0.1)).sum() == round(0.1 * 65536)


def test_a_clients_masks_do_not_depend_on_the_others():
    together = DropoutStream((7, 2), (0, 4, 9))
    alone = DropoutStream((7, 2), (4,))
    for width, probability in ((5, 0.5), (11, 0.3), (5, 0.5)):
        mask = together.keep((6, 8, 3), width, probability)
        assert mask[6:14].equal(alone.keep((8,), width, probability))


def test_clients_rounds_and_seeds_have_streams_of_their_own():
    masks = [
        DropoutStream((seed, number), (client,)).keep((20,), 20, 0.5)
        for seed in (0, 1) for number in (0, 1) for client in (0, 1)
    ]  # fmt: skip
    assert not any(a.equal(b) for i, a in enumerate(masks) for b in masks[:i])
    assert len({stream_key(a, b) for a in range(30) for b in range(30)}) == 900


def test_restart_repeats_and_draws_go_on():
    stream = DropoutStream((1, 1), (0, 1))
    first, second = (stream.keep((9, 9), 8, 0.5).clone() for _ in range(2))
    assert not first.equal(second)
    seeds = stream.next_seeds()
    stream.restart(1, 1)
    assert stream.keep((9, 9), 8, 0.5).equal(first)
    assert stream.next_seeds() == seeds
    stream.restart(1, 2)
    assert not stream.keep((9, 9), 8, 0.5).equal(first)


def test_an_empty_block_is_no_trouble():
    mask = DropoutStream((0, 0), (0, 1, 2)).keep((4, 0, 2), 3, 0.5)
    assert mask[4:].equal(DropoutStream((0, 0), (2,)).keep((2,), 3, 0.5))
