"""Reports: figures against direct computation, marks, schema, table, pictures; the cached reference."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from sklearn.metrics import f1_score, roc_auc_score
from tiny import TINY

import page_lightning as pl
from page_lightning.audit.ensemble import reference_ensemble, retrained_federation
from page_lightning.audit.lineage import model_sha256
from page_lightning.audit.queries import GLOBAL, Queries
from page_lightning.configuration import class_config
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request
from page_lightning.report import RowJudge
from page_lightning.unlearning import Outcome, distinct_names

CORE = {
    "retained_accuracy", "forgotten_accuracy", "macro_f1", "auroc", "kl_forgotten", "kl_retained", "js_forgotten",
    "agreement_forgotten", "agreement_retained", "lira_auc", "lira_tpr5", "mean_z", "rms_z", "t_lr", "rmia_auc",
    "loss_auc", "shadow_auc", "shadow_control_auc", "tug_of_war", "deletion_detectability", "parameter_distance",
}  # fmt: skip
ROW = {"name", "class_path", "init_args", "sha256", "parent", "path", "equal_to_no_op", "influenced", "metrics", "cost"}


def data_module(cache):
    return FederatedGraphDataModule(num_clients=3, ratios=(0.4, 0.3, 0.3), source_args=TINY, cache=str(cache))


def trainer(folder, rounds=3):
    return pl.FederatedTrainer(
        max_epochs=rounds, accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False,
        default_root_dir=folder, limit_val_batches=0,
    )  # fmt: skip


def run(folder, kind="node", audit=3, **options):
    return trainer(folder).unlearn(
        pl.FederatedTraining(pl.GCN(8)), data_module(folder / "cache"), pl.FineTune(2), pl.RequestOptions(kind),
        compare=[pl.Retrain(1), pl.GradientAscent(1, 1e-12)], output_dir=str(folder / "out"),
        audit=pl.AuditOptions(audit), **options,
    )  # fmt: skip


@pytest.fixture(scope="module", params=["node", "client"])
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return run(folder, request.param), folder / "out"


def test_rows_of_one_method_are_told_apart_by_their_options():
    methods = [pl.GIF(), pl.GIF("server"), pl.InfluencedUnlearning(pl.GIF("local")), pl.InfluencedUnlearning(pl.GIF())]
    methods += [pl.FedEraser(interval=1), pl.FedEraser(), pl.FedEraser(), pl.PAGE(), pl.PAGE("fixed"), pl.Retrain(2)]
    outcomes = [Outcome(method.row_name, None, config=class_config(method)) for method in methods]
    assert distinct_names(outcomes) == [
        *("gif(average)", "gif(server)", "gif+influenced(local)", "gif+influenced(average)"),
        *("fed_eraser(interval=1)", "fed_eraser(interval=2)", "fed_eraser(interval=2) #2"),
        *("page_plus", "page_fixed", "retrain@2"),
    ]


def test_the_schema(made):
    report, folder = made
    text = (folder / "report.json").read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    keys = {"schema", "report_id", "data", "request", "query", "rows", "audit", "environment"}
    assert found.keys() == keys
    assert found["schema"] == 1
    assert found["report_id"] == report.report_id
    assert found["data"].keys() >= {"dataset", "num_clients", "partitioner", "num_nodes", "kept_edges", "client_sizes"}
    assert sum(found["data"]["client_sizes"]) == found["data"]["num_nodes"] == 150
    counts = {"kinds", "request_id", "clients", "num_nodes", "num_edges", "num_features"}
    assert found["request"].keys() == counts
    assert found["query"].keys() == {"forgotten", "retained"}
    assert found["environment"].keys() == {"versions", "seed", "command"}
    assert [row["name"] for row in found["rows"]] == [
        "original", "no_op", "retrain", "fine_tune", "retrain@1", "gradient_ascent"
    ]  # fmt: skip
    for row in found["rows"]:
        assert row.keys() == ROW
        assert row["metrics"].keys() >= CORE
        assert all(m.keys() == {"value", "low", "high", "floor"} for m in row["metrics"].values())
        assert row["cost"].keys() == {
            "seconds", "cpu_seconds", "rounds", "local_epochs", "bytes_up", "bytes_down", "phase_cpu_seconds"
        }  # fmt: skip
        assert re.fullmatch("[0-9a-f]{64}", row["sha256"])
        assert row["parent"] == (None if row["name"] == "original" else found["rows"][0]["sha256"])
    for entry in found["audit"]:
        assert entry.keys() == {
            "row", "model", "verdict", "p_value", "power", "retrains", "residual_influence"
        }  # fmt: skip
        assert re.fullmatch(r"global|client \d", entry["model"])
        assert entry["verdict"] == "INCONCLUSIVE"  # three retrains are too few
        assert entry["residual_influence"].keys() == {"value", "low", "high"}
    assert {entry["row"] for entry in found["audit"]} == {row["name"] for row in found["rows"][1:]}


def test_no_ids_are_published(made):
    _, folder = made
    found = json.loads((folder / "report.json").read_text())
    known = [found["data"]["client_sizes"], found["request"]["clients"]]
    stack = [found]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            assert not {"nodes", "edges", "features", "targets"} & value.keys()
            stack += value.values()
        elif isinstance(value, list):
            assert value in known or not any(isinstance(item, int) for item in value)
            stack += value
    ids = next(iter(json.loads((folder / "request.json").read_text())["targets"]["nodes"].values()), [])
    assert len(ids) < 2 or ", ".join(map(str, ids)) not in (folder / "table.md").read_text()


def test_the_table(made):
    report, folder = made
    lines = (folder / "table.md").read_text().splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert len(table) == 2 + len(report.rows)
    assert len({len(row) for row in table}) == 1
    assert set(table[1]) == {"---"}
    assert table[0] == report.header
    assert [row[0].split(" ")[0] for row in table[2:]] == [row.name for row in report.rows]
    for cells, row in zip(table[2:], report.rows, strict=True):
        assert float(cells[1]) == pytest.approx(row.figures.metrics["retained_accuracy"].value, abs=5e-4)
    assert "csbm, 3 clients" in lines[-1]


def test_what_did_nothing_is_marked(made):
    report, folder = made
    assert report.row("no_op").equal_to_no_op
    assert report.row("original").equal_to_no_op is None
    ascended = report.row("gradient_ascent")
    assert ascended.figures.change < 1e-6  # a step of 1e-12
    assert ascended.equal_to_no_op
    assert "| no_op (= no-op) |" in (folder / "table.md").read_text()
    assert report.row("no_op").sha256 == report.row("original").sha256


def test_the_pictures_show_something(made):
    _, folder = made
    for name in ("accuracy", "roc", "clients"):
        path = folder / "figures" / f"{name}.png"
        picture = imread(path)
        assert path.stat().st_size > 8000
        assert min(picture.shape[:2]) > 300
        assert picture[..., :3].std() > 0.05
        assert len(np.unique(picture[..., :3].reshape(-1, 3).round(2), axis=0)) > 20


def test_the_same_job_has_the_same_id(made, tmp_path):
    report, _ = made
    again = run(tmp_path, report.request["kinds"][0])
    assert again.report_id == report.report_id
    assert run(tmp_path, report.request["kinds"][0], audit=2).report_id != report.report_id


def test_without_a_reference_there_are_accuracies(tmp_path):
    report = run(tmp_path, audit=0)
    names = [row.name for row in report.rows]
    assert names == ["original", "no_op", "fine_tune", "retrain@1", "gradient_ascent"]
    assert not json.loads(report.to_json())["audit"]
    assert {"retained_accuracy", "forgotten_accuracy"} <= report.rows[0].figures.metrics.keys()
    assert report.row("no_op").equal_to_no_op
    assert not (tmp_path / "out" / "figures" / "roc.png").exists()


# -- figures of a row ----------------------------------------------------------------------------------------------


class Scene:
    """A trained federation, a request on it, and its reference."""

    def __init__(self, folder, kind):
        module, data = pl.FederatedTraining(pl.GCN(8)), data_module(folder)
        trainer(folder).fit(module, datamodule=data)
        self.original, self.graphs = module.models, data.graphs
        self.request = pl.RequestOptions(kind, ratio=0.2).build(self.graphs, "csbm")
        self.retained = apply_request(self.graphs, self.request)
        self.queries = Queries(self.graphs, self.retained, self.request, 2, torch.float32)
        self.folder = folder

    def ensemble(self, original=None, request=None, size=3):
        return reference_ensemble(original or self.original, self.queries, request or self.request, size, self.folder)


@pytest.fixture(scope="module", params=["node", "client"])
def scene(request, tmp_path_factory):
    return Scene(tmp_path_factory.mktemp("scene"), request.param)


def test_figures_against_direct_computation(scene):
    q, ensemble = scene.queries, scene.ensemble()
    retrain = retrained_federation(scene.original, ensemble)
    found = RowJudge(q, scene.original, ensemble, retrain).judge(scene.original)
    value = {name: measure.value for name, measure in found.metrics.items()}
    is_global = bool(scene.request.clients)
    logits = (q.logits(scene.original)[GLOBAL] if is_global else q.local(scene.original)).double()
    reference = (ensemble.retrain[GLOBAL] if is_global else ensemble.retrain_local).double()
    y, client = scene.graphs.y, scene.graphs.client
    hit = (logits.argmax(1) == y).double()
    assert value["forgotten_accuracy"] == pytest.approx(float(hit[q.forgotten].mean()), abs=1e-6)
    sizes = torch.tensor(scene.retained.sizes).double()
    stay = [k for k in range(3) if scene.retained.sizes[k]]
    test = {k: q.kept_test & (client == k) for k in stay}
    weights = sizes[stay] / sizes.sum()
    accuracy = [float(hit[test[k]].mean()) for k in stay]
    assert value["retained_accuracy"] == pytest.approx(float(weights @ torch.tensor(accuracy).double()), abs=1e-6)
    assert [found.client_accuracy[k] for k in stay] == pytest.approx(accuracy, abs=1e-6)
    macro = [f1_score(y[test[k]], logits[test[k]].argmax(1), average="macro") for k in stay]
    assert value["macro_f1"] == pytest.approx(float(weights @ torch.tensor(macro).double()), abs=1e-6)
    p, each = logits.log_softmax(1), reference.log_softmax(2)
    for name, nodes in (("forgotten", q.forgotten), ("retained", q.kept_train | q.kept_test)):
        kl = (each.exp() * (each - p)).sum(2)[:, nodes].mean()
        assert value[f"kl_{name}"] == pytest.approx(float(kl), rel=1e-4)
        same = (reference.argmax(2) == logits.argmax(1))[:, nodes].double().mean()
        assert value[f"agreement_{name}"] == pytest.approx(float(same), abs=1e-6)
    own = logits.softmax(1).gather(1, y[:, None]).squeeze(1).logit()  # log-odds of the true class
    truth = torch.cat([torch.ones(int(q.forgotten.sum())), torch.zeros(int(q.held_out.sum()))])
    both = torch.cat([own[q.forgotten], own[q.held_out]])
    assert value["loss_auc"] == pytest.approx(roc_auc_score(truth, both), abs=1e-6)
    inside, outside = found.lira_scores
    scores = torch.cat([inside, outside])
    assert value["lira_auc"] == pytest.approx(roc_auc_score(truth, scores), abs=1e-6)
    for name in ("lira_auc", "loss_auc"):
        assert found.metrics[name].low <= value[name] <= found.metrics[name].high
    assert value["deletion_detectability"] == pytest.approx(0.5)
    assert found.change == 0


def test_a_cached_reference_is_the_same(scene, monkeypatch):
    first = scene.ensemble()
    monkeypatch.setattr("page_lightning.audit.ensemble.train_ensemble", None)  # a hit trains nothing
    second = scene.ensemble()
    for name, tensor in vars(first).items():
        for mine, theirs in zip(tensors(tensor), tensors(vars(second)[name]), strict=True):
            assert torch.equal(mine, theirs)


def test_another_job_has_another_reference(scene, monkeypatch):
    scene.ensemble()
    files = set((scene.folder / "ensembles").iterdir())
    recipe = scene.original.recipe
    others = [scene.original.fresh(replace(recipe, local_epochs=2)), scene.original.fresh(replace(recipe, seed=5))]
    longer = scene.original.clone()
    for federation, rounds in ((others[0], 3), (others[1], 3), (longer, 4)):
        federation.trained_rounds = rounds
        scene.ensemble(federation)
        assert len(files) + 1 == len(files := set((scene.folder / "ensembles").iterdir()))
    scene.ensemble(size=2)
    assert len(files) + 1 == len(files := set((scene.folder / "ensembles").iterdir()))
    scene.ensemble(request=pl.RequestOptions("edge", ratio=0.2).build(scene.graphs, "csbm"))
    assert len(files) + 1 == len(set((scene.folder / "ensembles").iterdir()))
    assert not list((scene.folder / "ensembles").glob("*.tmp"))


def test_model_digest_covers_every_bit(scene):
    before = model_sha256(scene.original)
    other = scene.original.clone()
    assert model_sha256(other) == before
    other.put([2], {"layers.1.bias": torch.nextafter(other.client_state([2])["layers.1.bias"], torch.tensor(9.0))})
    assert model_sha256(other) != before


def tensors(value):
    return list(value.values()) if isinstance(value, dict) else [value]
