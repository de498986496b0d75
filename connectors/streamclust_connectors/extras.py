"""Finds the extra of this distribution that installs a missing module."""

from __future__ import annotations

EXTRAS = {
    "cli": ("msgspec", "pyarrow", "pydantic", "pydantic_settings", "rich", "typer"),
    "http": ("fastapi", "plotly", "prometheus_client", "starlette", "uvicorn"),
    "confluent": ("confluent_kafka",),
    "kafka": ("crc32c", "kafka", "lz4", "snappy", "zstandard"),
    "plots": ("matplotlib",),
    "registry": (
        "attrs",
        "authlib",
        "cachetools",
        "fastavro",
        "google",
        "grpc_tools",
        "httpx",
        "jsonschema",
        "orjson",
    ),
    "spark": ("pyspark",),
}
"""Modules that each extra installs; a module of several extras is listed under the first."""


def install_hint(error: ImportError) -> str | None:
    """The command that installs the missing module; None if no extra contains it.

    >>> install_hint(ModuleNotFoundError("No module named 'typer'", name="typer"))
    "typer is not installed; run: pip install 'streamclust[cli]'"
    """
    module = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
    return None if extra is None else f"{module} is not installed; run: pip install 'streamclust[{extra}]'"
