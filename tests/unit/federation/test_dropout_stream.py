"""Dropout masks: rates, independence of clients, restarts."""

import pytest
import torch

from page_lightning.federation.randomness import DropoutStream, stream_key


@pytest.mark.parametrize("probability", [0.25, 0.5, 0.1, 0.37])
def test_drops_at_the_asked_rate(probability):
    keep = DropoutStream(0, (0, 1), 0).keep((3000, 1000), 101, probability)
    assert keep.shape == (4000, 101)
    deviation = (probability * (1 - probability) / keep.numel()) ** 0.5
    assert abs((~keep).double().mean().item() - probability) < 4 * deviation + 1 / 65536


@pytest.mark.parametrize(("probability", "words"), [(0.5, 256), (0.75, 256), (0.1, 65536)])
def test_rates_are_exact_up_to_the_size_of_a_random_word(monkeypatch, probability, words):
    """Every byte, or every pair of bytes, against the threshold."""
    stream = DropoutStream(0, ())
    every = torch.arange(words) if words == 256 else torch.arange(words) - 32768
    noise = every.to(torch.uint8 if words == 256 else torch.int16).view(torch.int64).view(1, -1)
    monkeypatch.setattr(stream, "_buffer", lambda *_: (noise, []))
    monkeypatch.setattr(stream, "generators", [])
    assert (~stream.keep((1,), words, probability)).sum() == round(probability * words)


def test_a_clients_masks_do_not_depend_on_the_others():
    together = DropoutStream(7, (0, 4, 9), 2)
    alone = DropoutStream(7, (4,), 2)
    for width, probability in ((5, 0.5), (11, 0.3), (5, 0.5)):
        mask = together.keep((6, 8, 3), width, probability)
        assert mask[6:14].equal(alone.keep((8,), width, probability))


def test_clients_rounds_and_seeds_have_streams_of_their_own():
    masks = [
        DropoutStream(seed, (client,), number).keep((20,), 20, 0.5)
        for seed in (0, 1) for number in (0, 1) for client in (0, 1)
    ]  # fmt: skip
    assert not any(a.equal(b) for i, a in enumerate(masks) for b in masks[:i])
    assert len({stream_key(a, b) for a in range(30) for b in range(30)}) == 900


def test_restart_repeats_and_draws_go_on():
    stream = DropoutStream(1, (0, 1), 1)
    first, second = (stream.keep((9, 9), 8, 0.5).clone() for _ in range(2))
    assert not first.equal(second)
    seeds = stream.next_seeds()
    stream.restart(1)
    assert stream.keep((9, 9), 8, 0.5).equal(first)
    assert stream.next_seeds() == seeds
    stream.restart(2)
    assert not stream.keep((9, 9), 8, 0.5).equal(first)


def test_an_empty_block_is_no_trouble():
    mask = DropoutStream(0, (0, 1, 2), 0).keep((4, 0, 2), 3, 0.5)
    assert mask[4:].equal(DropoutStream(0, (2,), 0).keep((2,), 3, 0.5))
