"""Objects as plain configuration and back, so that checkpoints and config files hold no pickled code."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from page_lightning.errors import ConfigurationError

_PLAIN = (type(None), bool, int, float, str, list, tuple, dict)


def class_config(value: object) -> dict[str, Any]:
    """The ``class_path`` and ``init_args`` that rebuild an object whose options are attributes of the same name.

    Options that are such objects themselves become the same inside.
    """
    cls = type(value)
    options = {name: getattr(value, name) for name in inspect.signature(cls).parameters}
    nested = {name: option if isinstance(option, _PLAIN) else class_config(option) for name, option in options.items()}
    return {"class_path": f"{cls.__module__}.{cls.__qualname__}", "init_args": nested}


def build_class(config: dict[str, Any]) -> Any:  # noqa: ANN401
    """The object that :func:`class_config` described."""
    options = {name: _built(value) for name, value in config.get("init_args", {}).items()}
    return import_class(config["class_path"], option="class_path")(**options)


def _built(value: Any) -> Any:  # noqa: ANN401
    return build_class(value) if isinstance(value, dict) and "class_path" in value else value


def import_class(path: str, option: str, default_module: str | None = None) -> Any:  # noqa: ANN401
    """Import a class by its dotted path, or by its bare name from ``default_module``.

    Args:
        path: for instance ``torch.optim.SGD`` or, with a default module, ``SGD``.
        option: the option to name in the error.
        default_module: where bare names are looked up.

    Raises:
        ConfigurationError: there is no such class.
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module or default_module or ""), name)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"{option}: there is no class '{path}'"
        raise ConfigurationError(message) from error
