import pytest
import torch

from page_lightning.metrics.functional import recovered_accuracy


def answers(*accuracies, nodes=1000, seed=0):
    draw = torch.rand(len(accuracies), nodes, generator=torch.Generator().manual_seed(seed))
    return draw < torch.tensor(accuracies)[:, None]


def test_no_op_recovers_nothing_and_retrain_everything():
    no_op, half, *retrain = answers(0.5, 0.65, 0.8, 0.8, 0.8)
    retrain, original = torch.stack(retrain), answers(0.5, 0.5, 0.5, seed=1)
    assert recovered_accuracy(no_op, no_op, retrain, original).value == 0
    values = [recovered_accuracy(each, no_op, retrain, original).value for each in retrain]
    assert sum(values) / len(values) == pytest.approx(1)
    found = recovered_accuracy(half, no_op, retrain, original)
    assert found.value == pytest.approx(0.5, abs=0.1)
    assert found.low < found.value < found.high
    assert found.high - found.low < 0.4
    assert found.head_room == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("gap", [-0.2, 0.0, 0.02])
def test_without_head_room_there_is_no_value(gap):
    no_op, *retrain = answers(0.6, 0.6 + gap, 0.6 + gap)
    found = recovered_accuracy(no_op, no_op, torch.stack(retrain), answers(0.6, 0.6, seed=1))
    assert found.value is found.low is found.high is None
    assert found.head_room <= 2 * found.standard_error


def test_the_scatter_of_seeds_counts():
    no_op, *retrain = answers(0.6, 0.75, 0.75)
    retrain = torch.stack(retrain)
    assert recovered_accuracy(no_op, no_op, retrain, answers(0.6, 0.6, seed=1)).value is not None
    assert recovered_accuracy(no_op, no_op, retrain, answers(0.4, 0.8, seed=1)).value is None
