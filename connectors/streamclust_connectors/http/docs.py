"""The page at /docs: the OpenAPI document as plain HTML, without scripts or other files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
TAGS = ("model", "snapshots", "health")
"""Order of the tags on the page."""
STYLE = """
:root { color-scheme: light dark; --line: light-dark(#d0d4da, #3c424b); --code: light-dark(#f3f4f6, #22262c);
  --get: light-dark(#0b5cad, #7db8f5); --post: light-dark(#1a6b33, #7ed195); --dim: light-dark(#555c66, #a8b0ba) }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 0 auto; padding: 1rem }
details { border: 1px solid var(--line); border-radius: .4rem; margin: .4rem 0; padding: .4rem .8rem }
summary { cursor: pointer; overflow-wrap: anywhere }
code, pre { font: 14px/1.45 ui-monospace, monospace }
pre { background: var(--code); padding: .6rem; overflow-x: auto; border-radius: .3rem }
.verb { font-weight: 700; display: inline-block; min-width: 3.2rem } .dim { color: var(--dim) }
.GET { color: var(--get) } .POST { color: var(--post) }
table { border-collapse: collapse } td, th { text-align: left; padding: .15rem .8rem .15rem 0 }
"""


def page(document: dict[str, Any]) -> str:
    """HTML page of an OpenAPI document."""
    info = document["info"]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>"
        '<p>For programs: <a href="openapi.json">openapi.json</a>. The dashboard: <a href="./">/</a>.</p>'
    ]
    tag = ""
    for path, verb, operation in operations(document):
        if operation["tags"][0] != tag:
            tag = operation["tags"][0]
            parts.append(f"<h2>{escape(tag)}</h2>")
        parts.extend(operation_html(document, path, verb, operation))
    return "".join(parts) + "</main></body></html>"


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """All operations, grouped by tag."""
    found = [
        (path, verb.upper(), operation)
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
    ]
    yield from sorted(found, key=lambda each: TAGS.index(each[2]["tags"][0]))


def operation_html(
    document: dict[str, Any], path: str, verb: str, operation: dict[str, Any]
) -> Iterator[str]:
    """HTML of one operation, collapsed."""
    about, *more = operation.get("description", operation["summary"]).split("\n", 1)
    yield (
        f'<details><summary><span class="verb {verb}">{verb}</span> <code>{escape(path)}</code> '
        f'<span class="dim">{escape(about)}</span></summary>'
    )
    yield from (f"<p>{escape(text.strip())}</p>" for text in more)
    if operation.get("parameters"):
        rows = "".join(
            f"<tr><td><code>{escape(p['name'])}</code><td>{escape(p['in'])}"
            f"<td>{escape(p.get('description', ''))}</tr>"
            for p in operation["parameters"]
        )
        yield f"<table><tr><th>parameter<th>in<th></tr>{rows}</table>"
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        examples = [e["value"] for e in body.get("examples", {}).values()] or [
            resolved(document, body["schema"])
        ]
        yield f"<p>Body, {escape(kind)}:</p>"
        yield from (f"<pre>{escape(json.dumps(example, indent=1))}</pre>" for example in examples)
    for status, answer in operation["responses"].items():
        schema = answer.get("content", {}).get("application/json", {}).get("schema")
        if schema:
            yield f"<p>Response, <b>{escape(status)}</b>:</p><pre>{escape(outline(document, schema))}</pre>"
    problems = [
        f"{status} {a['description']}" for status, a in operation["responses"].items() if status >= "400"
    ]
    yield f'<p class="dim">Errors: {escape(", ".join(problems))}</p>'
    yield "</details>"


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that a reference points to; other schemas unchanged."""
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return found


def outline(document: dict[str, Any], schema: dict[str, Any], depth: int = 0) -> str:
    """Readable outline of a schema: members and their types.

    >>> print(outline({}, {"properties": {"x": {"type": "array", "items": {"type": "number"}}}}))
    {
      x: [number]
    }
    """
    schema = resolved(document, schema)
    if "anyOf" in schema:
        return " | ".join(outline(document, each, depth) for each in schema["anyOf"])
    if schema.get("type") == "array":
        items = schema.get("prefixItems") or [schema.get("items", {})]
        return f"[{', '.join(outline(document, each, depth) for each in items)}]"
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "properties" in schema:
        indent = "  " * (depth + 1)
        members = [
            f"{indent}{name}: {outline(document, inner, depth + 1)}"
            for name, inner in schema["properties"].items()
        ]
        return "{\n" + "\n".join(members) + "\n" + "  " * depth + "}"
    if isinstance(schema.get("additionalProperties"), dict):
        return "{name: " + outline(document, schema["additionalProperties"], depth) + "}"
    return str(schema.get("type", "anything"))
