"""The batched statistics equal the metrics computed member by member."""

import pytest
import torch
from synthetic import World

from page_lightning.audit.statistics import group_statistics
from page_lightning.metrics.functional import accuracy, cross_entropy, kl, lira_auc, lira_z, mean_z, phi, t_lr


def measure(data, held_out=True):
    part = [each["global"].double() for each in (data.target, data.retrain, data.original)]
    never = data.held_out if held_out else torch.zeros_like(data.held_out)
    return part, group_statistics(*part, data.y, data.forgotten, never, data.retained)


def test_values_equal_a_loop_over_members():
    data = World(1).input("half", retrains=4)
    (target, retrain, original), found = measure(data)
    assert found.values.shape == (5, 5, len(found.roles))
    f, h, y = data.forgotten, data.held_out, data.y
    near = f | h
    for candidate in range(5):
        members = torch.cat([(target if candidate == 0 else original[candidate - 1])[None], retrain])
        anchors = [i for i in range(4) if i != max(candidate - 1, 0)]
        for i, member in enumerate(members):
            others = torch.cat([members[:i], members[i + 1 :]])
            scores = phi(member, y)[near], phi(others, y)[:, near]
            z = lira_z(*scores)
            expected = {
                "mean_z": mean_z(z, f[near], h[near]),
                "lira_auc": lira_auc(z, f[near], h[near]),
                "t_lr": t_lr(*scores, phi(original[anchors], y)[:, near])[f[near]].mean(),
                "loss_forgotten": cross_entropy(member[f], y[f]).mean(),
                "kl_forgotten": kl(others[:, f], member[f]).mean(),
            }
            for name, kept in (("retained", data.retained), ("held_out", h)):
                expected[f"loss_{name}"] = cross_entropy(member[kept], y[kept]).mean()
                expected[f"kl_{name}"] = kl(others[:, kept], member[kept]).mean()
                expected[f"accuracy_{name}"] = accuracy(member[kept], y[kept])
            assert list(found.roles) == list(expected)
            torch.testing.assert_close(found.values[candidate, i], torch.stack(list(expected.values())))


def test_deviations_equal_a_loop_and_are_finite_where_all_models_agree():
    data = World(2).input("no_op", retrains=5)
    _, found = measure(data)
    deviation = found.deviations()
    assert deviation.isfinite().all()
    for i in range(6):
        others = torch.cat([found.values[0, :i], found.values[0, i + 1 :]])
        scale = (others.var(0) + found.resolution**2).sqrt()
        torch.testing.assert_close(deviation[0, i], (found.values[0, i] - others.mean(0)) / scale)
    same = {"global": data.retrain["global"][:1].expand(5, -1, -1)}
    _, found = measure(type(data)({"global": same["global"][0]}, same, same, *list(vars(data).values())[3:]))
    # accuracies and divergences agree; z has no unit without spread, and the originals have none
    torch.testing.assert_close(found.deviations()[..., 3:], torch.zeros(6, 6, 8).double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("held_out", [True, False])
def test_members_are_treated_alike(held_out):
    """Exchanging the candidate with a retrained model exchanges their values and touches nothing else."""
    data = World(3).input("half", retrains=5)
    (target, retrain, original), found = measure(data, held_out)
    swapped = retrain.clone()
    swapped[2] = target
    never = data.held_out if held_out else torch.zeros_like(data.held_out)
    other = group_statistics(retrain[2], swapped, original, data.y, data.forgotten, never, data.retained)
    torch.testing.assert_close(other.values[0], found.values[0, [3, 1, 2, 0, 4, 5]])
    torch.testing.assert_close(other.deviations()[0], found.deviations()[0, [3, 1, 2, 0, 4, 5]])
    assert ("lira_auc" in found.roles) == held_out
