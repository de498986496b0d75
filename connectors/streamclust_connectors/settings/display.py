"""Prints settings without their secrets."""

from __future__ import annotations

import re
from typing import Any

from streamclust_connectors.settings.loading import SENSITIVE
from streamclust_connectors.settings.root import Settings, secrets, sections

HIDDEN = "**********"


def redacted(settings: Settings) -> dict[str, Any]:
    """All settings as JSON values, with secrets hidden."""
    found = settings.model_dump(mode="json")
    found["kafka"]["options"] = {k: _redacted(k, v) for k, v in settings.kafka.options.items()}
    return found


def _redacted(name: str, value: object) -> object:
    if SENSITIVE.search(name):
        return HIDDEN
    return re.sub(r"(?<=//)[^/@\s]+(?=@)", HIDDEN, value) if isinstance(value, str) else value


def to_toml(settings: Settings) -> str:
    """All settings as a TOML file with descriptions; secrets and settings without a value are comments."""
    found = redacted(settings)
    lines = []
    for name, field in Settings.model_fields.items():
        if not isinstance(found[name], dict):
            lines += [f"# {field.description}", _assignment(name, found[name]), ""]
    for name, kind in sections().items():
        lines += [f"[{name}]  # {(kind.__doc__ or '').strip()}"]
        for key, inner in kind.model_fields.items():
            lines += [f"# {inner.description}", _assignment(key, found[name][key], key in secrets(name))]
        lines += [""]
    return "\n".join(lines)


def _assignment(name: str, value: object, secret: bool = False) -> str:
    if secret and value is not None:
        return f"# {name} is set"
    return f"# {name} =" if value is None else f"{name} = {_toml(value)}"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    safe = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda m: f"\\u{ord(m[0]):04x}", safe) + '"'
