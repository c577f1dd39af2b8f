"""A report: rows of figures and verdicts about one request, as JSON, Markdown and a terminal table."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from page_lightning.audit.exchangeability import MIN_RETRAINS
from page_lightning.audit.outcome import Audit, Verdict
from page_lightning.report.rows import Measure, RowFigures

SCHEMA = 1
COLUMNS = (
    ("retained accuracy", "retained_accuracy"),
    ("forgotten accuracy", "forgotten_accuracy"),
    ("KL forgotten", "kl_forgotten"),
    ("KL retained", "kl_retained"),
    ("LiRA AUC", "lira_auc"),
    ("mean z", "mean_z"),
    ("rms z", "rms_z"),
)
RECOVERED = "recovered"
SPECIAL_COLUMNS = (("link AUC", "link_auc"), ("recovered", RECOVERED))
NO_HEAD_ROOM = "no head-room: on clean data doing nothing is as accurate as Retrain, within two standard errors"
_LEGEND = (
    "\nretain, forget: accuracy on retained test nodes and on forgotten nodes; KL on forgotten nodes"
    "\nRIR: residual influence, 0 like retrain and 1 like no-op; *: not told from no-op"
)
_RECOVERED_LEGEND = "\nrecov.: share of the poison's harm undone, 0 like no-op and 1 like retrain"


@dataclass(frozen=True)
class Cost:
    """What a row took.

    Args:
        seconds: wall time.
        cpu_seconds: of this process.
        rounds: communication rounds.
        local_epochs: summed over clients.
        bytes_up: from clients to the server.
        bytes_down: from the server to clients.
        phase_cpu_seconds: of each phase, by name.
    """

    seconds: float | None
    cpu_seconds: float | None
    rounds: int
    local_epochs: int
    bytes_up: int
    bytes_down: int
    phase_cpu_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One model in a report.

    Args:
        name: ``original``, ``no_op``, ``retrain`` or a method's name.
        class_path: of the method; empty for the original.
        init_args: of the method.
        sha256: of the federation.
        parent: SHA-256 of the federation it was made from.
        path: checkpoint, where there is one.
        equal_to_no_op: whether it did nothing, as far as can be told; none where that cannot be asked.
        influenced: clients chosen as influenced, with their similarities.
        figures: its figures.
        cost: what it took.
        audit: what the audit says of it.
    """

    name: str
    class_path: str
    init_args: Mapping[str, Any]
    sha256: str
    parent: str | None
    path: str | None
    equal_to_no_op: bool | None
    influenced: Mapping[str, Any] | None
    figures: RowFigures
    cost: Cost
    audit: Audit | None = None


@dataclass(frozen=True)
class Report:
    """Everything that ``unlearn`` found.

    Args:
        data: name, clients, partitioner and sizes.
        request: kinds, counts and digest; no ids.
        query: which graph forgotten and retained nodes were queried on.
        rows: original first, then no-op.
        environment: versions, seed and command.
        judged_by: the models that head the table, ``local`` or ``global``.
        retrain_band: least and greatest accuracy among the retrained models, by metric; for figures.
    """

    data: Mapping[str, Any]
    request: Mapping[str, Any]
    query: Mapping[str, str]
    rows: tuple[Row, ...]
    environment: Mapping[str, Any]
    judged_by: str
    retrain_band: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def row(self, name: str) -> Row:
        """The row of that name.

        Raises:
            KeyError: there is none.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def content(self) -> dict[str, Any]:
        """The report as plain values (schema 1), without its id."""
        return {
            "schema": SCHEMA,
            "data": dict(self.data),
            "request": dict(self.request),
            "query": dict(self.query),
            "rows": [_row_content(row) for row in self.rows],
            "audit": [entry for row in self.rows if row.audit is not None for entry in _audit_content(row, row.audit)],
            "environment": dict(self.environment),
        }

    @property
    def report_id(self) -> str:
        """SHA-256 of the content without costs, paths, times and the command: the same for the same job."""
        content = self.content()
        for row in content["rows"]:
            del row["cost"], row["path"]
        content["environment"] = {k: v for k, v in content["environment"].items() if k != "command"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """``report.json``."""
        content = self.content()
        ordered = {"schema": content.pop("schema"), "report_id": self.report_id, **content}
        return json.dumps(ordered, indent=2, allow_nan=False) + "\n"

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Titles and metrics of the table; some metrics belong to a kind of request."""
        found = {name for row in self.rows for name in row.figures.metrics}
        return (*COLUMNS, *((title, name) for title, name in SPECIAL_COLUMNS if name in found))

    @property
    def lacks_head_room(self) -> bool:
        """Whether doing nothing is as good as Retrain on clean data, so that no recovery can be shown."""
        found = [row.figures.metrics[RECOVERED] for row in self.rows if RECOVERED in row.figures.metrics]
        return bool(found) and all(measure.value is None for measure in found)

    def cells(self) -> list[list[str]]:
        """The table's rows as text: name, the columns, local epochs, verdict."""
        return [
            [
                row.name + (" (= no-op)" if row.equal_to_no_op else ""),
                *(_text(row.figures.metrics.get(metric)) for _, metric in self.columns),
                _influence_text(row),
                str(row.cost.local_epochs),
                "" if row.audit is None else row.audit.verdict.value,
            ]
            for row in self.rows
        ]

    @property
    def header(self) -> list[str]:
        """Column names of :meth:`cells`."""
        return ["model", *(title for title, _ in self.columns), "RIR", "local epochs", "verdict"]

    def caption(self) -> str:
        """What the table shows, in one line."""
        audits = [row.audit for row in self.rows if row.audit is not None]
        models = "the server's model" if self.judged_by == "global" else "each client's own model"
        if not audits:
            reference = "no audit"
        elif audits[0].retrains < MIN_RETRAINS:
            reference = f"{audits[0].retrains} retrains: too few for a verdict"
        else:
            reference = f"{audits[0].retrains} retrains, power {min(audit.power for audit in audits):.2f}"
        if self.lacks_head_room:
            reference += f"; {NO_HEAD_ROOM}"
        return f"{self.data['dataset']}, {self.data['num_clients']} clients, {self.asked()}; {models}, {reference}"

    def asked(self) -> str:
        """What was asked, in words."""
        counts = {
            "client": len(self.request["clients"]),
            "node": self.request["num_nodes"],
            "edge": self.request["num_edges"],
            "feature entrie": self.request["num_features"],
        }
        parts = [f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count]
        return (" and ".join(parts) or "nothing") + " forgotten"

    def flagged(self) -> list[str]:
        """For each row that was flagged, which of its retained models were, in words."""
        lines = []
        for row in self.rows:
            by_verdict: dict[str, list[str]] = {}
            for result in row.audit.results if row.audit is not None else []:
                if result.verdict in {Verdict.RESIDUAL, Verdict.DAMAGED}:
                    name = "server" if result.model == "global" else result.model
                    by_verdict.setdefault(result.verdict.value.lower(), []).append(name)
            if row.audit is not None and by_verdict:
                if len(by_verdict) == 1 and sum(map(len, by_verdict.values())) == len(row.audit.results):
                    continue  # all of them alike: the table's verdict says it
                parts = [f"{verdict}: {', '.join(names)}" for verdict, names in by_verdict.items()]
                lines.append(f"{row.name} {'; '.join(parts)}")
        return lines

    def table(self) -> Table:
        """The main columns for a terminal of 80 characters; :meth:`markdown` has all."""
        recovered = any(RECOVERED in row.figures.metrics for row in self.rows)
        table = Table(
            title="Closer to retrain is better",
            caption=self.caption() + _LEGEND + (_RECOVERED_LEGEND if recovered else ""),
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
        )
        table.add_column("model", overflow="fold")
        for title in ("retain", "forget", "KL", "mean z", "RIR", *(["recov."] if recovered else [])):
            table.add_column(title, justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        for row in self.rows:
            metrics = row.figures.metrics
            table.add_row(
                row.name + ("*" if row.equal_to_no_op else ""),
                *(_text(metrics.get(name)) for name in ("retained_accuracy", "forgotten_accuracy", "kl_forgotten")),
                _text(metrics.get("mean_z")),
                _influence_text(row),
                *([_text(metrics.get(RECOVERED), digits=2)] if recovered else []),
                "" if row.audit is None else row.audit.verdict.value,
            )
        return table

    def markdown(self) -> str:
        """``table.md``."""
        lines = ["| " + " | ".join(self.header) + " |", "|" + " --- |" * len(self.header)]
        lines += ["| " + " | ".join(cells) + " |" for cells in self.cells()]
        flagged = [f"- {line}" for line in self.flagged()]
        return "\n".join([*lines, "", self.caption() + ".", *(["", *flagged] if flagged else []), ""])

    def write(self, folder: Path) -> None:
        """Write ``report.json`` and ``table.md``."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(self.to_json())
        (folder / "table.md").write_text(self.markdown())


def _row_content(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "class_path": row.class_path,
        "init_args": dict(row.init_args),
        "sha256": row.sha256,
        "parent": row.parent,
        "path": row.path,
        "equal_to_no_op": row.equal_to_no_op,
        "influenced": row.influenced,
        "metrics": {name: {k: _plain(v) for k, v in asdict(m).items()} for name, m in row.figures.metrics.items()},
        "cost": asdict(row.cost),
    }


def _audit_content(row: Row, audit: Audit) -> list[dict[str, Any]]:
    return [
        {
            "row": row.name,
            "model": result.model,
            "verdict": result.verdict.value,
            "p_value": result.p_value,
            "power": result.power,
            "retrains": result.retrains,
            "residual_influence": {k: _plain(v) for k, v in result.residual_influence._asdict().items()},
        }
        for result in audit.results
    ]


def _plain(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _text(measure: Measure | None, digits: int = 3) -> str:
    return "-" if measure is None or measure.value is None else f"{measure.value:.{digits}f}"


def _influence_text(row: Row) -> str:
    influence = row.figures.influence
    return "-" if influence is None or influence.value is None else f"{influence.value:.2f}"
