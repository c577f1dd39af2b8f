"""Bytes by closed form, and who owns which client."""

import csv

import pytest
import torch

from page_lightning.federation.messages import Channel, Message
from page_lightning.federation.processes import owners


def test_bytes_by_closed_form(tmp_path):
    model = {"weight": torch.zeros(10, 4), "bias": torch.zeros(4), "step": torch.zeros((), dtype=torch.int64)}
    per_client = 4 * (10 * 4 + 4) + 8
    channel, heard = Channel(), []
    channel.listeners.append(heard.append)
    for number in range(2):
        channel.send(Message.of_model("down", (0, 1, 2), model, lambda: model), number)
        channel.send(Message.of_model("up", (0, 2), model, dict), number)
    assert channel.total("down") == 2 * 3 * per_client
    assert channel.total("up") == 2 * 2 * per_client
    assert heard[0].bytes_per_client == per_client
    assert heard[0].payload() is model
    other = Channel()
    other.load(channel.state())
    assert other.ledger == channel.ledger
    channel.write_csv(tmp_path / "ledger.csv")
    rows = list(csv.DictReader((tmp_path / "ledger.csv").open()))
    assert [int(row["bytes"]) for row in rows] == [3 * per_client, 2 * per_client] * 2


def test_owners_balance_the_work_and_are_the_same_everywhere():
    cost = [5, 1, 9, 3, 3, 2, 7]
    owner = owners(cost, 2)
    load = [sum(c for c, o in zip(cost, owner, strict=True) if o == p) for p in range(2)]
    assert load == [15, 15]
    assert owners(cost, 2) == owner


@pytest.mark.parametrize(("clients", "processes"), [(1, 3), (7, 3), (3, 3), (100, 4)])
def test_equal_clients_spread_evenly(clients, processes):
    count = [owners([0.0] * clients, processes).count(p) for p in range(processes)]
    assert max(count) - min(count) <= 1
