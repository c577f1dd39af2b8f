"""Poison as a data option, and the request that undoes it."""

import json

from tiny import TINY_JOB

AUDIT = ("--audit.retrains", "2")


def test_an_edge_attack_is_made_and_undone(page_lightning, tmp_path):
    attack = ("--data.poison", "EdgeAttack", "--data.poison.ratio", "0.5", "--data.poison.kind", "any")
    page_lightning("fit", *TINY_JOB, *attack)
    checkpoint = "runs/version_0/checkpoints/last.ckpt"
    said = page_lightning(
        *("unlearn", *TINY_JOB, *attack, *AUDIT, "--trained_ckpt_path", checkpoint, "--output_dir", "out"),
        *("--request.kind", "poison", "--method", "NoOp", "--compare", "[FineTune]"),
    )
    assert "recov" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["request"]["kinds"] == ["edge"]
    rows = {row["name"]: row["metrics"] for row in report["rows"]}
    assert all(0 <= metrics["link_auc"]["value"] <= 1 for metrics in rows.values())
    assert rows["no_op"]["recovered"]["value"] in {0.0, None}
    said = page_lightning(
        *("verify", *TINY_JOB, *AUDIT, "--before", checkpoint, "--after", "out/unlearned.ckpt"),
        *("--request.kind", "poison", "--output_dir", "verified"),
        expect=4,
    )
    again = json.loads((tmp_path / "verified" / "report.json").read_text())
    assert again["request"]["request_id"] == report["request"]["request_id"]


def test_a_poisoned_client_leaves(page_lightning, tmp_path):
    page_lightning(
        *("unlearn", *TINY_JOB, *AUDIT, "--data.poison", "LabelShift", "--data.poison.clients", "[1]"),
        *("--request.kind", "poison", "--output_dir", "out"),
    )
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (report["request"]["kinds"], report["request"]["clients"]) == (["client"], [1])
    assert all("recovered" in row["metrics"] and "link_auc" not in row["metrics"] for row in report["rows"])


def test_mistakes_are_one_line(page_lightning):
    for words, *arguments in (
        ("request.kind poison: the data are not poisoned", "--request.kind", "poison"),
        ("label shift: give either clients or ratio", "--data.poison", "LabelShift"),
        ("edge attack: ratio -1", "--data.poison", "EdgeAttack", "--data.poison.ratio", "-1"),
        ("data.poison: there is no class 'Nope'", "--data.poison", "Nope"),
        ("request.kind: ", "--request.kind", "poisonous"),
    ):
        said = page_lightning("unlearn", *TINY_JOB, *arguments, expect=2)
        assert words in said.err
        assert len(said.err.splitlines()) == 1
