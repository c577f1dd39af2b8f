"""PAGE's stages: alone under a Trainer and nested, what they promise about graphs, and their losses."""

import pytest
import torch
from lightning.pytorch import Trainer

from page_lightning.backbones import GAT, GCN, GraphSAGE
from page_lightning.data import FederatedGraphDataModule
from page_lightning.federation.federation import Federation
from page_lightning.federation.recipe import Recipe
from page_lightning.modules.adversarial_graphs import AdversarialGraphGenerator, attack, random_graphs
from page_lightning.modules.local_training import LocalTraining
from page_lightning.modules.negative_distillation import NegativeDistillation
from page_lightning.modules.prototype_unlearning import PrototypeUnlearning
from page_lightning.modules.stage import run_stage
from page_lightning.modules.teacher_distillation import TeacherDistillation
from page_lightning.prototypes import principal_basis

SMALL = {"class_sizes": [40, 30, 30], "num_edges": 260, "num_words": 80, "words_per_node": 7}


@pytest.fixture(scope="module")
def graphs():
    data = FederatedGraphDataModule(num_clients=2, source_args=SMALL)
    data.setup()
    return data.graphs


def federation(graphs, backbone=None, seed=0):
    return Federation.create(backbone or GCN(6), graphs.num_features, 3, graphs.num_clients, Recipe(seed=seed))


def forgotten(graphs):
    mask = torch.zeros(graphs.num_nodes, dtype=torch.bool)
    mask[graphs.masks["train"].nonzero().squeeze(1)[::3]] = True
    return mask


def probes(graphs, count=2, nodes=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mean = graphs.x.to_dense().mean(0).expand(count, -1)
    return random_graphs(count, nodes, mean, torch.full((count,), 3.0), generator)


def make(name, graphs):
    held = federation(graphs)
    if name == "local_training":
        return LocalTraining(held.server, graphs)
    if name == "prototype_unlearning":
        bases = [principal_basis(torch.randn(4, 6, generator=torch.Generator().manual_seed(k))) for k in range(2)]
        bases = [basis[:, :2] for basis in bases]
        return PrototypeUnlearning(
            held.server, held.client_state(), graphs, forgotten(graphs), bases, retain="ce", retained=graphs
        )
    if name == "adversarial_graphs":
        other = federation(graphs, seed=1)
        return AdversarialGraphGenerator(held.server, held.client_state(), other.client_state(), *probes(graphs))
    if name == "negative_distillation":
        x, adjacency = probes(graphs)
        return NegativeDistillation(held.server, held.client_state(), graphs, x, adjacency, torch.randn(2, 8, 3))
    mask = forgotten(graphs)
    answers = torch.full((int(mask.sum()), 3), 1 / 3)
    return TeacherDistillation(held.server, held.client_state(), graphs, mask, answers, graphs)


STAGES = [
    "local_training", "prototype_unlearning", "adversarial_graphs", "negative_distillation", "teacher_distillation",
]  # fmt: skip


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_alone_equals_the_nested_one(graphs, name, tmp_path):
    torch.manual_seed(0)
    nested = make(name, graphs)
    torch.manual_seed(0)
    alone = make(name, graphs)
    start = {key: value.clone() for key, value in nested.state_dict().items()}
    run_stage(nested, 3)
    Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    ).fit(alone)  # fmt: skip
    assert any(not torch.equal(value, start[key]) for key, value in nested.state_dict().items())
    for key, value in nested.state_dict().items():
        assert torch.equal(value, alone.state_dict()[key]), key


@pytest.mark.parametrize("target", ["private", "common", "matched", "zero"])
def test_prototypes_move_to_their_target(graphs, target):
    held = federation(graphs)
    bases = [torch.linalg.qr(torch.randn(6, 2, generator=torch.Generator().manual_seed(k)))[0] for k in range(2)]
    stage = PrototypeUnlearning(
        held.server, held.client_state(), graphs, forgotten(graphs), bases, target, strength=2.0, lr=1e-2
    )
    before = stage.prototypes()
    if target in {"common", "matched"}:
        steps = (stage.goal - before.mean) / (1.0 if target == "common" else 2.0)
        inside = torch.stack([step @ basis for step, basis in zip(steps, bases, strict=True)])
        assert inside[before.present].abs().max() < 1e-6  # only the part outside the basis is asked to go
    first = float(stage.training_step().detach())
    run_stage(stage, 30)
    assert float(stage.training_step().detach()) < 0.7 * first


def test_prototype_loss_leaves_the_last_layer_alone(graphs):
    held = federation(graphs)
    stage = PrototypeUnlearning(
        held.server, held.client_state(), graphs, forgotten(graphs), [torch.zeros(6, 0)] * 2, "zero"
    )
    run_stage(stage, 2)
    moved = {name: not torch.equal(t, held.client_state()[name]) for name, t in stage.stack.canonical().items()}
    assert moved["layers.0.weight"]
    assert not moved["layers.1.weight"]


@pytest.mark.parametrize("backbone", [GCN(6), GAT(6), GraphSAGE(6)], ids=lambda b: type(b).__name__)
def test_adversarial_graphs_keep_their_promises(graphs, backbone):
    one, two = federation(graphs, backbone), federation(graphs, backbone, seed=1)
    x, adjacency = probes(graphs)
    generator = AdversarialGraphGenerator(
        one.server, one.client_state(), two.client_state(), x, adjacency, 0.05, flips=3, divergence="kl", lr=0.05
    )
    first = generator.disagreement(x, adjacency).mean()
    attack(generator, 60)
    assert generator.reported["disagreement"] > first
    x_final, a_final = generator.graphs()
    assert (x_final - x).abs().max() <= 0.05 + 1e-6
    assert torch.equal(a_final, a_final.transpose(1, 2))
    assert a_final.diagonal(dim1=1, dim2=2).eq(0).all()
    assert ((a_final != adjacency).flatten(1).sum(1) <= 2 * 3).all()
    assert set(a_final.unique().tolist()) <= {0.0, 1.0}


def test_identical_models_have_nothing_to_disagree_on(graphs):
    held = federation(graphs)
    x, adjacency = probes(graphs)
    generator = AdversarialGraphGenerator(
        held.server, held.client_state(), held.client_state(), x, adjacency, divergence="kl"
    )
    assert generator.disagreement(x, adjacency).abs().max() < 1e-6


def test_the_printed_algorithm_flips_single_entries_of_a_swamped_attack(graphs):
    one, two = federation(graphs), federation(graphs, seed=1)
    x, adjacency = probes(graphs)
    generator = AdversarialGraphGenerator(
        one.server, one.client_state(), two.client_state(), x, adjacency, literal=True, divergence="ce"
    )
    cost = (generator.adjacency() - adjacency).abs().sum((1, 2))
    assert (0.1 * cost > 2 * generator.disagreement(x, adjacency)).all()  # lambda * L1 against the attack
    attack(generator, 20)
    _, final = generator.graphs()
    assert ((final != adjacency).flatten(1).sum(1) >= 1).all()


def test_without_alpha_distillation_starts_at_a_stationary_point(graphs):
    held = federation(graphs)
    x, adjacency = probes(graphs)
    stage = NegativeDistillation(
        held.server, held.client_state(), graphs, x, adjacency, torch.randn(2, 8, 3), alpha=0.0
    )
    stage.training_step().backward()
    assert all(p.grad.abs().max() < 1e-6 for p in stage.stack.tensors)


def test_a_student_answers_only_its_own_probes(graphs):
    held = federation(graphs)
    x, adjacency = probes(graphs)
    answers = torch.randn(2, 8, 3)
    asked = torch.tensor([[True, False], [False, False]])
    stage = NegativeDistillation(held.server, held.client_state(), graphs, x, adjacency, answers, asked, positive="mse")
    stage.training_step().backward()
    grads = stage.stack.tensors[0].grad
    assert grads[0].abs().max() > 1e-6
    assert grads[1].abs().max() < 1e-6
