"""Verdicts on imagined federations: what must be caught, what must not, and what cannot be told."""

import json
from dataclasses import asdict, replace
from math import sqrt

import pytest
import torch
from synthetic import World

from page_lightning.audit import ResidualInfluence, Verdict, audit, equal_to_no_op
from page_lightning.errors import ConfigurationError

LOCAL = ("global", "client 0", "client 1")


@pytest.mark.parametrize("models", [("global",), LOCAL])
@pytest.mark.parametrize("retrains", [8, 19])
@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("no_op", Verdict.RESIDUAL),
        ("half", Verdict.RESIDUAL),
        ("hotter", Verdict.RESIDUAL),
        ("random", Verdict.DAMAGED),
        ("constant", Verdict.DAMAGED),
        ("ascent", Verdict.DAMAGED),
    ],
)
def test_what_must_be_caught(kind, verdict, retrains, models):
    for seed in range(3):
        found = audit(World(seed).input(kind, retrains, models))
        assert found.verdict == verdict
        assert found.p_value == 1 / (retrains + 1)
        assert found.power == 1
        assert [result.model for result in found.results] == list(models)
        assert {result.verdict for result in found.results} == {verdict}


def test_forgotten_nodes_driven_beyond_retrain_are_caught():
    found = audit(World().input("over", 19))
    assert found.verdict == Verdict.RESIDUAL
    assert found.results[0].residual_influence.high < 0


@pytest.mark.parametrize(("retrains", "models", "runs"), [(8, ("global",), 240), (8, LOCAL, 80), (19, ("global",), 80)])
def test_retrained_models_are_flagged_at_the_nominal_level(retrains, models, runs):
    found = [audit(World(100 + seed).input("retrain", retrains, models)) for seed in range(runs)]
    level = 1 / (retrains + 1)
    flagged = sum(each.p_value <= level for each in found)
    assert abs(flagged - runs * level) <= 3 * sqrt(runs * level * (1 - level))
    accepted = sum(each.verdict == Verdict.INDISTINGUISHABLE for each in found)
    assert accepted == runs - flagged
    mean_p = sum(each.p_value for each in found) / runs  # uniform on the multiples of the level
    assert abs(mean_p - (1 + level) / 2) < 3 * 0.29 / sqrt(runs)


def test_of_an_ensemble_left_out_in_turn_exactly_one_stands_out():
    data = World(7).input("no_op", 10, LOCAL)
    p_values = sorted(audit(data.left_out(i)).p_value for i in range(10))
    assert p_values == pytest.approx([i / 10 for i in range(1, 11)])


def test_without_power_nothing_is_claimed_but_damage():
    for kind, verdict in {
        "retrain": Verdict.INCONCLUSIVE,
        "no_op": Verdict.INCONCLUSIVE,
        "random": Verdict.DAMAGED,
    }.items():
        found = audit(World(4, memory=0.03).input(kind, 8))
        assert found.power < 0.8
        assert found.verdict == found.results[0].verdict == verdict


@pytest.mark.parametrize("kind", ["no_op", "random", "retrain"])
@pytest.mark.parametrize("retrains", [2, 7])
def test_few_retrained_models_give_numbers_only(kind, retrains):
    found = audit(World().input(kind, retrains))
    assert found.verdict == Verdict.INCONCLUSIVE
    assert found.retrains == retrains
    assert found.results[0].residual_influence.value is not None


def test_one_model_that_leaks_condemns_the_federation_and_not_its_neighbours():
    world = World(5)
    data = world.input("retrain", 19, LOCAL)
    found = audit(replace(data, target={**data.target, "client 1": data.original["client 1"][0]}))
    assert found.verdict == Verdict.RESIDUAL
    verdicts = [result.verdict for result in found.results]
    assert verdicts == [Verdict.INDISTINGUISHABLE, Verdict.INDISTINGUISHABLE, Verdict.RESIDUAL]
    assert found.p_value == found.results[2].p_value == 0.05
    assert min(result.p_value for result in found.results[:2]) > 0.05


def test_a_poison_that_no_op_keeps_is_residual_not_damage():
    """Originals that are worse than Retrain on kept data, as after edge or label poisoning."""
    world = World(6)

    def poisoned(logits):
        spoilt = logits.clone()
        spoilt[..., world.held_out, :] = 0.3 * spoilt[..., world.held_out, :] + world.noise
        return spoilt

    world.noise = world.normal(int(world.held_out.sum()), 4)
    data = world.input("no_op", 9)
    original = {"global": poisoned(data.original["global"])}
    found = audit(replace(data, target={"global": original["global"][0]}, original=original))
    table = found.results[0].statistics
    assert table["accuracy_held_out"].outside
    assert table["accuracy_held_out"].value < table["accuracy_held_out"].retrain
    assert found.verdict == Verdict.RESIDUAL


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("no_op", Verdict.RESIDUAL), ("random", Verdict.DAMAGED), ("retrain", Verdict.INDISTINGUISHABLE)],
)
def test_a_forgotten_client_has_no_held_out_nodes(kind, verdict):
    data = World(8).input(kind, 19)
    found = audit(replace(data, held_out=torch.zeros_like(data.held_out)))
    assert found.verdict == verdict
    assert "lira_auc" not in found.results[0].statistics


def test_models_may_answer_for_different_nodes():
    """A client's own model is asked about its own nodes: then every description of nodes is per model."""
    whole, part = World(10).input("no_op", 9, LOCAL), torch.arange(220) % 2 == 0

    def cut(logits):
        return {**logits, "client 0": logits["client 0"][..., part, :]}

    def describe(nodes):
        return {"global": nodes, "client 0": nodes[part], "client 1": nodes}

    logits = {name: cut(getattr(whole, name)) for name in ("target", "retrain", "original")}
    nodes = {name: describe(getattr(whole, name)) for name in ("y", "forgotten", "held_out", "retained")}
    found = audit(replace(whole, **logits, **nodes))
    assert found.verdict == Verdict.RESIDUAL
    expected = audit(whole)
    for i, same in enumerate((True, False, True)):
        mine, theirs = found.results[i].statistics["mean_z"], expected.results[i].statistics["mean_z"]
        assert (mine.value == theirs.value) == same


def test_a_copy_of_a_retrained_model_is_never_flagged():
    data = World(9).input("retrain", 12)
    for i in range(12):
        assert audit(replace(data, target={"global": data.retrain["global"][i]})).p_value > 1 / 13


def test_result_is_plain_data():
    found = audit(World().input("half"))
    text = json.loads(json.dumps(asdict(found)))
    assert text["verdict"] == "RESIDUAL"
    statistic = text["results"][0]["statistics"]["mean_z"]
    assert statistic["outside"]
    assert statistic["retrain"] < statistic["value"] < statistic["original"]
    assert audit(World().input("half")) == found


def spoil_name(data):
    return {"retrain": {"server": data.retrain["global"]}}


def spoil_shape(data):
    return {"original": {"global": data.original["global"][:, :5]}}


def spoil_size(data):
    return {"retrain": {"global": data.retrain["global"][:1]}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (spoil_name, "server"),
        (spoil_shape, "shape"),
        (spoil_size, "at least 2"),
        (lambda data: {"target": {}}, "no retained model"),
        (lambda data: {"forgotten": torch.zeros_like(data.forgotten)}, "no node is forgotten"),
        (lambda data: {"held_out": data.held_out | data.forgotten}, "also held out"),
        (lambda data: {"retained": data.retained.nonzero()}, "boolean mask"),
    ],
)
def test_parts_that_do_not_fit_are_named(change, words):
    data = World().input("no_op")
    with pytest.raises(ConfigurationError, match=words):
        replace(data, **change(data))


def test_equal_to_no_op():
    far, near, wide, unknown = (
        ResidualInfluence(0.1, -0.1, 0.3),
        ResidualInfluence(0.9, 0.7, 1.1),
        ResidualInfluence(0.1, -1.1, 1.3),
        ResidualInfluence(*[None] * 3),
    )
    assert equal_to_no_op(0.0, far)
    assert equal_to_no_op(0.5, near)
    assert not equal_to_no_op(0.5, far)
    assert not equal_to_no_op(0.5, unknown)
    assert not equal_to_no_op(0.5, wide)
    for seed in range(5):
        for kind, equal in {"no_op": True, "retrain": False, "half": False}.items():
            influence = audit(World(seed).input(kind)).results[0].residual_influence
            assert equal_to_no_op(0.5, influence) == equal
