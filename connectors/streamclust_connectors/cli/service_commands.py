"""Commands run, serve and health: the service and its health check."""

from __future__ import annotations

import gc
import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamclust_connectors.cli.errors import ExitCode, fail
from streamclust_connectors.cli.http_server import Http, http_flags, http_server, telemetry
from streamclust_connectors.cli.options import (
    Config,
    Input,
    Servers,
    Set,
    TopicName,
    examples,
    settings_from,
)

if TYPE_CHECKING:
    from streamclust_connectors.service import Service
    from streamclust_connectors.service.key_models import Learner
    from streamclust_connectors.settings import Settings

app = typer.Typer()
log = logging.getLogger(__name__)

Kind = Annotated[
    str | None, typer.Option("--source", help="kafka, jsonl, csv, parquet, stdin, synthetic or http.")
]
State = Annotated[Path | None, typer.Option("--state", help="Directory of checkpoints.")]
LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning or error.")]
STOP_SECONDS = 9.5
"""Time after SIGTERM at which the process ends even if it could not stop in good order."""
MONITOR_SECONDS = 2.0
"""Time between two updates of the health file."""


@app.command(
    epilog=examples(
        "streamclust run --topic events --state state",
        "streamclust run --config service.toml --set engine.half_life=50000",
        "streamclust run --input events.jsonl --output found.jsonl",
        "streamclust run --topic images --state state --model features",
        "streamclust run --source synthetic --set output.kind=none --http 8080",
        "cat events.jsonl | streamclust run --input - --set output.assignments=false",
    )
)
def run(
    config: Config = None,
    given: Set = None,
    source: Kind = None,
    path: Input = None,
    topic: TopicName = None,
    servers: Servers = None,
    model: Annotated[str | None, typer.Option(help="clusters or features.")] = None,
    per: Annotated[
        str | None, typer.Option(help='Path of a key that has a model of its own, or "record-key".')
    ] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Consumer group.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for the results, as JSON lines; - for standard output."),
    ] = None,
    state: State = None,
    checkpoint_events: Annotated[
        int | None, typer.Option(min=1, help="Also write a checkpoint after this number of events.")
    ] = None,
    on_data_loss: Annotated[
        str | None, typer.Option(help="fail or continue if records were deleted before they were learnt.")
    ] = None,
    log_level: LogLevel = None,
    http: Http = None,
) -> None:
    """Run the service: read events from a source, learn clusters or features, and send results to an output.

    Flags override the environment (STREAMCLUST_KAFKA__TOPIC), which overrides the settings file.

    SIGTERM and SIGINT stop it after a final checkpoint; SIGUSR1 takes a snapshot.
    """
    settings = settings_from(
        config,
        given,
        {
            "model": model,
            "per.key": per,
            "source.kind": source,
            "source.path": path,
            "kafka.topic": topic,
            "kafka.bootstrap_servers": servers,
            "kafka.group_id": group,
            "output.path": output,
            "checkpoint.directory": state,
            "checkpoint.every_events": checkpoint_events,
            "on_data_loss": on_data_loss,
            "logging.level": log_level,
            **http_flags(http),
        },
    )
    run_service(settings)


@app.command(
    epilog=examples(
        "streamclust serve --state state",
        "STREAMCLUST_HTTP__TOKEN=... streamclust serve --http 0.0.0.0:8080 --state state",
        """curl localhost:8080/v1/learn --data '[{"x": 1.5, "y": 2}, {"x": 8, "y": 9}]'""",
        """curl localhost:8080/v1/predict --data '{"x": 1.5, "y": 2}'""",
    )
)
def serve(
    config: Config = None,
    given: Set = None,
    state: State = None,
    log_level: LogLevel = None,
    http: Http = None,
) -> None:
    """Cluster events sent by HTTP: API at /v1, its description at /docs, a dashboard at /.

    Checkpoints are written to the state directory every checkpoint.every_seconds and at the end.

    SIGTERM and SIGINT stop it after a final checkpoint.
    """
    flags = {
        "source.kind": "http",
        "checkpoint.directory": state,
        "logging.level": log_level,
        "http.enabled": True,
        **http_flags(http),
    }
    run_service(settings_from(config, given, flags))


def run_service(settings: Settings) -> None:
    """Set up logging and run a service."""
    settings.check()
    from streamclust_connectors.cli.logs import set_up_logging

    set_up_logging(settings.logging.level, settings.logging.format)
    if settings.source_kind == "http" and settings.checkpoint.directory is None:
        log.warning("no state directory: a restart loses the model; give one with --state")
    run_with_monitor(settings)


def run_with_monitor(settings: Settings) -> None:
    """Run a service, and a thread that writes its health file and logs its progress."""
    from streamclust_connectors.cli.kernel_warm_up import warm_up
    from streamclust_connectors.cli.service_factory import create_service

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.OK))  # nothing to save yet
    service = create_service(settings)
    # Events sent by HTTP are nowhere else: their last checkpoint is waited for.
    service.stop_on_signals(STOP_SECONDS if settings.source_kind == "kafka" else None)
    gc.freeze()  # imported objects are permanent: the collector skips them from now on
    log.info("started", extra={"source": settings.source_kind, "output": settings.output_kind})
    over = threading.Event()
    monitor = threading.Thread(target=monitor_service, args=(service, settings, over), daemon=True)
    monitor.start()
    try:
        with http_server(service, settings), telemetry(service, settings):
            if settings.source_kind == "kafka":
                warm_up(service, settings)
            service.run()
    finally:
        over.set()
        monitor.join(MONITOR_SECONDS)
        if settings.health.file is not None:
            settings.health.file.unlink(missing_ok=True)
    log.info("stopped", extra=figures(service))


def monitor_service(service: Service, settings: Settings, over: threading.Event) -> None:
    """Write the health file and log the progress periodically, until the service ends."""
    due = time.monotonic() + settings.logging.every_seconds
    failed = False
    while True:
        if settings.health.file is not None:
            try:
                write_health(settings.health.file, service.stats.heartbeat_age, service.stats.ready)
                failed = False
            except OSError as error:  # a full disk must not stop the service
                if not failed:
                    log.error("the health file cannot be written: %s", error)
                failed = True
        if time.monotonic() >= due:
            due = time.monotonic() + settings.logging.every_seconds
            log.info("progress", extra=figures(service))
        if over.wait(MONITOR_SECONDS):
            return


def figures(service: Service) -> dict[str, Any]:
    """Statistics of a service for a log line."""
    stats = service.stats
    names = "messages", "events", "dead_letters", "assignments", "checkpoints", "retries"
    age = stats.checkpoint_age
    return {name: getattr(stats, name) for name in names} | {
        **model_size(service.learner),
        "events_per_second": round(stats.rate, 1),
        "lag": sum(stats.lag.values()),
        "checkpoint_age_seconds": None if age is None else round(age, 1),
    }


def model_size(learner: Learner) -> dict[str, int]:
    """Number of clusters, of features, or of keys."""
    from streamclust.streaming import StreamClusterer
    from streamclust_connectors.service.key_models import KeyModels

    if isinstance(learner, StreamClusterer):
        return {"clusters": learner.n_clusters}
    if isinstance(learner, KeyModels):
        return {"keys": learner.n_keys, "keys_in_memory": learner.n_live}
    return {"features": learner.n_features}


# -------------------------------------------------------------------- health


def write_health(path: Path, age: float, ready: bool) -> None:
    """Write the health file atomically."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps({"time": time.time(), "age": age, "ready": ready}))
    part.replace(path)


@app.command(
    epilog=examples(
        "streamclust health /state/health.json",
    )
)
def health(
    file: Annotated[
        Path | None,
        typer.Argument(help="Health file of the service; by default health.file of the settings."),
    ] = None,
    config: Config = None,
    given: Set = None,
) -> None:
    """Check the service: exit code 0 if its last heartbeat is recent, else 1 and the reason."""
    settings = settings_from(config, given, {"health.file": file})
    path, limit = settings.health.file, settings.health.max_age_seconds
    if path is None:
        raise typer.BadParameter(
            "the health file is required; set health.file or give FILE", param_hint="FILE"
        )
    try:
        found = json.loads(path.read_text())
        age = time.time() - float(found["time"]) + float(found["age"])
    except (OSError, ValueError, KeyError, TypeError):
        fail(f"{path} cannot be read; is the service running with health.file set to it?")
    if age > limit:
        fail(f"the last heartbeat of the service loop was {age:.0f} s ago; the limit is {limit:g} s")
    typer.echo(
        f"healthy: last heartbeat {max(age, 0.0):.0f} s ago, {'ready' if found['ready'] else 'not ready'}"
    )
