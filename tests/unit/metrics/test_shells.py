"""The torchmetrics classes equal their functions, however the nodes are divided among updates and processes."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from page_lightning import metrics
from page_lightning.metrics import functional as F

N, C, R = 60, 4, 5


def tensors():
    generator = torch.Generator().manual_seed(0)
    logits, before = torch.randn(2, N, C, generator=generator).unbind()
    retrain, original = torch.randn(2, R, N, C, generator=generator).unbind()
    y = torch.randint(C, (N,), generator=generator)
    return logits, before, retrain, original, y, torch.arange(N) % 3 == 0


def attack(posterior):
    return posterior.max(-1, keepdim=True).values * 1e4


def cases():
    """Metric, its update for some nodes, and what it must give."""
    logits, before, retrain, original, y, forgotten = tensors()
    confidence = F.phi(logits, y)
    z = F.lira_z(confidence, F.phi(retrain, y))
    robust = F.rmia(F.relative_log_likelihood(logits, retrain, y), ~forgotten)
    sure = logits.softmax(-1).amax(-1)
    lira = {
        "lira_auc": F.lira_auc(z, forgotten, ~forgotten),
        "lira_tpr5": F.tpr_at_fpr(z[forgotten], z[~forgotten]),
        "mean_z": F.mean_z(z, forgotten, ~forgotten),
        "rms_z": F.rms_z(z, forgotten),
    }

    def distance(measure):
        return {"value": measure(retrain, logits).mean(), "floor": F.ensemble_floor(measure, retrain).mean()}

    def area(scores):
        return F.rank_auc(scores[forgotten], scores[~forgotten])

    sets = [forgotten, ~forgotten]
    return {
        "rank": (metrics.RankAUROC(), lambda i: (sure[i], forgotten[i]), area(sure)),
        "loss": (metrics.LossMIA(), lambda i: (logits[i], y[i], forgotten[i]), area(confidence)),
        "shadow": (metrics.ShadowMIA(attack), lambda i: (logits[i], forgotten[i]), area(sure)),
        "deletion": (
            metrics.DeletionDetectability(),
            lambda i: (before[i], logits[i], forgotten[i]),
            F.deletion_detectability(before, logits, forgotten, ~forgotten),
        ),
        "lira": (metrics.OfflineLiRA(), lambda i: (logits[i], retrain[:, i], y[i], forgotten[i]), lira),
        "rmia": (metrics.RMIA(), lambda i: (logits[i], retrain[:, i], y[i], forgotten[i]), area(robust)),
        "efficacy": (
            metrics.EfficacyLR(),
            lambda i: (logits[i], retrain[:, i], original[:, i], y[i]),
            F.t_lr(confidence, F.phi(retrain, y), F.phi(original, y)).mean(),
        ),
        "kl": (metrics.RetrainKL(), lambda i: (logits[i], retrain[:, i]), distance(F.kl)),
        "js": (metrics.RetrainJS(), lambda i: (logits[i], retrain[:, i]), distance(F.jensen_shannon)),
        "agreement": (metrics.RetrainAgreement(), lambda i: (logits[i], retrain[:, i]), distance(F.agreement)),
        "tug": (
            metrics.TugOfWar(3),  # the third set stays empty
            lambda i: (logits[i], retrain[:, i], y[i], (~forgotten[i]).long()),
            F.tug_of_war(logits, retrain, y, sets),
        ),
    }


NAMES = list(cases())
EMPTY = torch.arange(0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("parts", [1, 4])
def test_equals_its_function_for_any_number_of_updates(name, parts):
    metric, batch, expected = cases()[name]
    for nodes in [*torch.arange(N).chunk(parts), EMPTY]:
        metric.update(*batch(nodes))
    torch.testing.assert_close(metric.compute(), expected)
    metric.reset()
    metric.update(*batch(torch.arange(N).flip(0)))
    torch.testing.assert_close(metric.compute(), expected)


def two_processes(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for shares in ((torch.arange(17), torch.arange(17, N)), (torch.arange(N), EMPTY)):
        for name, (metric, batch, expected) in cases().items():
            metric.update(*batch(shares[rank]))
            torch.testing.assert_close(metric.compute(), expected, msg=name)
    dist.destroy_process_group()


@pytest.mark.distributed
def test_two_processes_and_an_empty_one(tmp_path):
    mp.start_processes(two_processes, (str(tmp_path),), nprocs=2, start_method="fork")  # no imports to repeat
