"""Which extra of this distribution installs a missing module."""

from __future__ import annotations

EXTRAS = {
    "cli": ("msgspec", "pyarrow", "pydantic", "pydantic_settings", "rich", "typer"),
    "http": ("fastapi", "plotly", "prometheus_client", "starlette", "uvicorn"),
    "confluent": ("confluent_kafka",),
    "kafka": ("crc32c", "kafka"),
    "plots": ("matplotlib",),
    "spark": ("pyspark",),
}
"""The modules that each extra installs; one that several extras install stands under the first of them."""


def cure(error: ImportError) -> str | None:
    """The command that installs the missing module; None if no extra contains it.

    >>> cure(ModuleNotFoundError("No module named 'typer'", name="typer"))
    "typer is not installed; pip install 'streamclust[cli]' brings it"
    """
    module = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
    return (
        None if extra is None else f"{module} is not installed; pip install 'streamclust[{extra}]' brings it"
    )
