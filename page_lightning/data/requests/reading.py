"""Requests from files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from page_lightning.data.requests.checks import check_request
from page_lightning.data.requests.context import RequestContext
from page_lightning.data.requests.request import SCHEMA, UnlearningRequest
from page_lightning.data.requests.sampling import Pool
from page_lightning.data.requests.targets import NamedTargets
from page_lightning.errors import RequestError, StaleRequestError
from page_lightning.federation.graphs import ClientGraphs

_WRITTEN = {"schema", "request_id", "dataset", "federation", "targets", "selection"}
_BY_HAND = {"schema", "targets"}


def read_request(path: Path | str, graphs: ClientGraphs, name: str, pool: Pool = "train") -> UnlearningRequest:
    """Read a request and check that it can be fulfilled.

    JSON is what `UnlearningRequest.write` made, or only `{"targets": {...}}` with some of `clients`, `nodes`, `edges`
    and `features`, each for its client or as one list:
    `{"targets": {"nodes": [12, 77], "edges": {"0": [[1, 5]]}, "features": [{"nodes": [4], "columns": [3, 17]}]}}`.
    The header of a CSV file says what it names: `node_id`, `src,dst`, `client_id`, or `node_id,column`, where a column
    may be `all`. Repeated targets count once.

    Args:
        path: A `.json` or `.csv` file.
        graphs: All clients' graphs.
        name: Name of the data set.
        pool: Whether a file written by hand may name nodes that are not for training ("all").

    Returns:
        The request.

    Raises:
        StaleRequestError: The file was made for other data, or changed after it was written.
        RequestError: The file is missing, malformed, empty, or asks for something impossible.
    """
    path = Path(path)
    origin = f"request.path {path}"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{origin}: cannot be read ({getattr(error, 'strerror', None) or 'no UTF-8 text'})"
        raise RequestError(msg) from error
    if path.suffix.lower() == ".csv":
        content: dict[str, Any] = {"targets": _csv_targets(text, origin)}
    else:
        content = _json_object(text, origin)
    written = "request_id" in content
    unknown = sorted(set(content) - (_WRITTEN if written else _BY_HAND))
    if unknown or "targets" not in content:
        what = f"unknown key {unknown[0]!r}" if unknown else "no key 'targets'"
        msg = f"{origin}: {what}; a request written by hand has 'targets' only"
        raise RequestError(msg)
    if content.get("schema", SCHEMA) != SCHEMA:
        msg = f"{origin}: schema {content['schema']!r} is not {SCHEMA}"
        raise RequestError(msg)
    context = _context(content, origin) if written else RequestContext.of(graphs, name)
    targets = NamedTargets.parse(content["targets"], graphs, origin)
    selection = content.get("selection") if written else {"mode": "named"}
    request = UnlearningRequest(targets.clients, targets.nodes, targets.edges, targets.features, context, selection)
    if written:
        if request.request_id != content["request_id"]:
            found = (
                f"request_id {str(content['request_id'])[:16]} is not that of its content, {request.request_id[:16]}"
            )
            msg = f"{origin} was changed after it was written: {found}"
            raise StaleRequestError(msg)
        context.check(graphs, name, origin)
    if request.is_empty and not written:
        msg = f"{origin}: nothing to forget in it"
        raise RequestError(msg)
    check_request(graphs, request, origin, training_nodes_only=pool == "train" and not written)
    return request


def _json_object(text: str, origin: str) -> dict[str, Any]:
    def unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            msg = f"{origin}: an object with the key {pairs[-1][0]!r} has a key twice"
            raise RequestError(msg)
        return content

    try:
        content = json.loads(text, object_pairs_hook=unrepeated)
    except (json.JSONDecodeError, RecursionError) as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "too deep"
        msg = f"{origin}: no valid JSON ({where})"
        raise RequestError(msg) from error
    if not isinstance(content, dict):
        msg = f"{origin}: must hold one JSON object with 'targets'"
        raise RequestError(msg)
    return content


def _context(content: dict[str, Any], origin: str) -> RequestContext:
    try:
        dataset, federation = content["dataset"], content["federation"]
        return RequestContext(
            dataset["name"],
            dataset["sha256"],
            federation["partition_sha256"],
            federation["split_sha256"],
            federation["num_clients"],
        )
    except (KeyError, TypeError) as error:
        msg = (
            f"{origin}: 'dataset' or 'federation' is incomplete; take the file as it was written, or only its 'targets'"
        )
        raise RequestError(msg) from error


def _csv_targets(text: str, origin: str) -> dict[str, Any]:
    """The rows of a CSV file in the form of the JSON key `targets`."""
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    header = tuple(cell.strip().lower() for cell in next(rows, ()))
    if header not in {("node_id",), ("client_id",), ("src", "dst"), ("node_id", "column")}:
        msg = (
            f"{origin}: the first line must be node_id, src,dst, client_id or node_id,column; got {','.join(header)!r}"
        )
        raise RequestError(msg)
    cells = [_csv_row(row, header, f"{origin} line {rows.line_num}") for row in rows if any(map(str.strip, row))]
    if header == ("src", "dst"):
        return {"edges": cells}
    if header == ("node_id", "column"):
        nodes: dict[int | str, list[int | str]] = {}
        for node, column in cells:
            nodes.setdefault(column, []).append(node)
        return {"features": [{"nodes": n, "columns": c if c == "all" else [c]} for c, n in nodes.items()]}
    return {"nodes" if header == ("node_id",) else "clients": [row[0] for row in cells]}


def _csv_row(row: list[str], header: tuple[str, ...], origin: str) -> list[int | str]:
    values = [cell.strip() for cell in row]
    if len(values) != len(header):
        msg = f"{origin}: {len(values)} values under the header {','.join(header)}"
        raise RequestError(msg)
    try:
        return ["all" if (name, v) == ("column", "all") else int(v) for name, v in zip(header, values, strict=True)]
    except ValueError as error:
        msg = f"{origin}: {','.join(values)!r} must be integers"
        raise RequestError(msg) from error
