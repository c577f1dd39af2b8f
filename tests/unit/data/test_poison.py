import pytest
import torch
from tiny import TINY

from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request
from page_lightning.data.poison import EdgeAttack, LabelShift
from page_lightning.data.requests import RequestContext, RequestOptions
from page_lightning.errors import RequestError

POISONS = [
    EdgeAttack(0.5, "heterophilous"),
    EdgeAttack(0.3, "any", 4),
    LabelShift(clients=[1]),
    LabelShift(ratio=0.2, seed=3),
]
FORGET_POISON = RequestOptions(kind="poison")


def module(poison=None, **options):
    data = FederatedGraphDataModule("csbm", 3, source_args=TINY, poison=poison, **options)
    data.setup()
    return data


def build(options, data):
    return options.build(data.graphs, "csbm", poison=data.poison_request)


@pytest.mark.parametrize("poison", POISONS, ids=lambda poison: f"{type(poison).__name__}-{poison.ratio}")
def test_the_request_is_what_the_poison_did(poison):
    clean, data = module(), module(poison)
    assert RequestContext.of(data.graphs, "csbm") != RequestContext.of(clean.graphs, "csbm")
    request = build(FORGET_POISON, data)
    assert request is data.poison_request
    assert request.undoes_poison
    retained = apply_request(data.graphs, request)
    if isinstance(poison, EdgeAttack):
        assert RequestContext.of(retained, "csbm") == RequestContext.of(clean.graphs, "csbm")
        return
    spoilt = (data.graphs.y != clean.graphs.y).nonzero().squeeze(1)
    assert clean.graphs.masks["train"][spoilt].all(), "labels of validation and test nodes stay true"
    true = dict(zip(clean.graphs.node_id.tolist(), clean.graphs.y.tolist(), strict=True))
    assert [true[node] for node in retained.node_id.tolist()] == retained.y.tolist()
    named = {node for found in request.nodes.values() for node in found}
    if poison.clients:
        assert request.clients == (1,)
        assert (clean.graphs.client[spoilt] == 1).all()
        assert len(spoilt) == int(clean.graphs.count("train")[1])
    else:
        assert named == set(clean.graphs.node_id[spoilt].tolist())


@pytest.mark.parametrize("poison", POISONS, ids=lambda poison: f"{type(poison).__name__}-{poison.ratio}")
def test_hyperparameters_rebuild_poisoned_data(poison, tmp_path):
    data = module(poison)
    saved = dict(data.hparams)
    torch.save(saved, tmp_path / "saved.pt")
    plain = torch.load(tmp_path / "saved.pt", weights_only=True)
    checkpoint = {"datamodule_hyper_parameters": plain, "federation": {"requests": []}}
    again = module().for_checkpoint(checkpoint, tmp_path / "last.ckpt")
    again.setup()
    assert again.poison_request == data.poison_request
    assert torch.equal(again.graphs.y, data.graphs.y)
    assert torch.equal(again.graphs.edge_index, data.graphs.edge_index)


def test_data_without_poison_have_no_such_request():
    data = module()
    assert data.poison_request is None
    with pytest.raises(RequestError, match=r"request\.kind poison: the data are not poisoned; choose data\.poison"):
        build(FORGET_POISON, data)


@pytest.mark.parametrize("extra", [{"ratio": 0.1}, {"count": 3}, {"clients": [0]}, {"path": "request.json"}])
def test_the_poison_cannot_be_chosen_in_part(extra):
    with pytest.raises(RequestError, match=r"request\.kind poison is what data\.poison did"):
        RequestOptions(kind="poison", **extra)


def test_the_poison_is_forgotten_first(tmp_path):
    data = module(LabelShift(ratio=0.2))
    other = build(RequestOptions(kind="node", count=1), data)
    other.write(tmp_path / "request.json")
    later = module(LabelShift(ratio=0.2), forgotten=[str(tmp_path / "request.json")])
    assert later.graphs.num_nodes == data.graphs.num_nodes - 3
    with pytest.raises(RequestError, match="an earlier request changed the data"):
        build(FORGET_POISON, later)


def test_a_written_request_still_tells_that_it_undoes_a_poison(tmp_path):
    data = module(EdgeAttack(0.3, "any"))
    data.poison_request.write(tmp_path / "request.json")
    read = build(RequestOptions(path=str(tmp_path / "request.json")), data)
    assert read == data.poison_request
    assert read.undoes_poison
    assert not build(RequestOptions(kind="edge"), data).undoes_poison
