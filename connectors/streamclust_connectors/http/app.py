"""Routes of the API. msgspec encodes the responses; NaN and infinities become null."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Literal

import msgspec
from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from prometheus_client.exposition import choose_encoder
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from streamclust import __version__
from streamclust.lineage import MAX_NAME_CHARACTERS, one_line
from streamclust.streaming import StreamClusterer
from streamclust_connectors.http import dashboard, schemas
from streamclust_connectors.http.backend import Backend
from streamclust_connectors.http.docs import HEADERS, page
from streamclust_connectors.http.keys import add_keys
from streamclust_connectors.http.metrics import registry
from streamclust_connectors.http.problems import HttpProblem, documented, install
from streamclust_connectors.http.security import HEAD, AccessControl
from streamclust_connectors.http.streams import EventStreams
from streamclust_connectors.service.checkpointer import checkpoint_failure_message
from streamclust_connectors.service.key_models import KeyModels
from streamclust_connectors.settings import Settings

MAX_JSON_INTEGER = 2**53
"""Largest integer that every JSON parser represents exactly."""
Number = Annotated[int, Path(ge=0, le=MAX_JSON_INTEGER)]
After = Annotated[int, Query(ge=0, le=MAX_JSON_INTEGER, description="Only events after this `seq`.")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Since = Annotated[int, Query(ge=0, le=MAX_JSON_INTEGER, description="Version of the earlier snapshot.")]
Level = Annotated[
    Literal["fine"] | Annotated[int, Field(ge=1, le=MAX_JSON_INTEGER)] | None,
    Query(description="Number of clusters, or `fine`; by default the level on show."),
]
Feature = Annotated[str | None, Query(description="Name of a feature; by default the principal axes.")]


def create_app(backend: Backend, settings: Settings) -> FastAPI:
    """The application of a service; if it learns features, only health and metrics."""
    learner = backend.service.learner
    if isinstance(learner, KeyModels):
        app = plain_app(backend, settings, "A model for each key of a stream.")
        add_keys(app, backend, learner)
        return app
    if not isinstance(learner, StreamClusterer):
        return plain_app(backend, settings, "Features of a stream.")
    streams = EventStreams(backend, settings.http.max_streams)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        sampling = asyncio.create_task(streams.run())
        yield
        streams.close()
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling

    app = guarded_app("Streaming clustering that learns the number of clusters.", settings, lifespan=lifespan)
    app.state.streams = streams
    add_health(app, backend, settings)
    add_model(app, backend)
    add_lifecycle(app, backend, streams)
    add_learning(app, backend)
    add_snapshots(app, backend, settings)
    app.include_router(dashboard.router())
    return app


def plain_app(backend: Backend, settings: Settings, description: str) -> FastAPI:
    """Application of a service without one model of clusters: health and metrics only."""
    app = guarded_app(description, settings)
    add_health(app, backend, settings)
    return app


def guarded_app(description: str, settings: Settings, **options: Any) -> FastAPI:
    """An application without routes, with access control and errors as problems."""
    app = FastAPI(
        title="streamclust",
        version=__version__,
        description=description,
        docs_url=None,
        redoc_url=None,
        responses=documented(401, 403, 413, 503),
        generate_unique_id_function=lambda route: route.name,
        **options,
    )
    install(app)
    app.add_middleware(AccessControl, settings=settings.http)
    return app


def answer(content: object, status: int = 200, **headers: str) -> Response:
    """JSON response."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def add_health(app: FastAPI, backend: Backend, settings: Settings) -> None:
    """Add the routes of health checks, metrics and documentation."""
    metrics = registry(backend)

    @app.get("/livez", tags=["health"], response_model=schemas.Alive)
    async def livez() -> Response:
        """Whether the service loop is running."""
        age, limit = backend.service.stats.heartbeat_age, settings.health.max_age_seconds
        if age > limit:
            raise HttpProblem(
                503, f"the last heartbeat of the service loop was {age:.0f} s ago; the limit is {limit:g} s"
            )
        return answer({"heartbeat_age_seconds": age})

    @app.get("/readyz", tags=["health"], response_model=schemas.Ready)
    async def readyz() -> Response:
        """Whether state and model are loaded, checkpoints can be written, and refits succeed."""
        stats = backend.service.stats
        group = backend.service.group
        if not stats.ready:
            raise HttpProblem(503, stats.not_ready, {"Retry-After": "1"})
        limit = settings.group.max_staleness_seconds
        if group is not None and (age := group.staleness or 0.0) > limit:
            raise HttpProblem(
                503,
                f"the model is {age:.0f} s old; the limit is {limit:g} s (group.max_staleness_seconds)",
                {"Retry-After": "10"},
            )
        if stats.checkpoint_error:
            raise HttpProblem(
                503, f"the service is running, but {checkpoint_failure_message(stats)}", {"Retry-After": "10"}
            )
        if trouble := backend.refit_trouble:
            raise HttpProblem(503, f"the service is running, but {trouble}", {"Retry-After": "10"})
        return answer({"ready": True})

    @app.get(
        "/metrics", tags=["health"], response_class=Response, responses={200: {"content": {"text/plain": {}}}}
    )
    async def prometheus_metrics(request: Request) -> Response:
        """Metrics for Prometheus."""
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics), headers={"Content-Type": kind})

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page(app.openapi()), headers=HEADERS)


def add_model(app: FastAPI, backend: Backend) -> None:
    """Add the routes that show the service and its clusters."""

    @app.get("/v1/status", tags=["model"], response_model=schemas.Status)
    async def status() -> Response:
        """Status of the service."""
        return answer(backend.status())

    @app.get("/v1/clusters", tags=["model"], response_model=schemas.Clusters, responses=documented(404, 422))
    def clusters(level: Level = None) -> Response:
        """Current clusters, the heaviest first; with `level`, those of another level, as published last."""
        return answer(backend.clusters() if level is None else backend.clusters_at(level))

    @app.get("/v1/levels", tags=["model"], response_model=schemas.Levels)
    def levels() -> Response:
        """Levels that can be shown, the finest first: numbers of clusters, and how long each persists."""
        return answer(backend.levels())

    @app.get(
        "/v1/clusters/{id}",
        tags=["model"],
        response_model=schemas.ClusterDetail | schemas.PastCluster,
        responses=documented(404, 422),
    )
    def cluster(id: Number) -> Response:
        """Details of a cluster: its features, its share over time, its lifecycle, some recent events.

        For a cluster that has died, split or merged (`alive` is false): its share over time and its lifecycle.
        """
        return answer(backend.cluster(id))

    @app.put(
        "/v1/clusters/{id}/name",
        tags=["model"],
        response_model=schemas.ClusterName,
        responses=documented(404, 422),
        openapi_extra={"requestBody": schemas.NAME},
    )
    async def name_cluster(id: Number, request: Request) -> Response:
        """Give a name to a cluster, which stays with its id; null takes it away.

        In a consumer group with one model, the other processes have it with the leader's next model.
        """
        name = requested_name(await request.body())
        return answer(await run_in_threadpool(backend.name_cluster, id, name))

    @app.get(
        "/v1/history", tags=["model"], response_model=schemas.ServiceHistory, responses=documented(404, 422)
    )
    def history(since: Annotated[float, Query(allow_inf_nan=False)] = 0.0, level: Level = None) -> Response:
        """Samples after `since` (seconds since 1970): one per second, fewer for older times.

        With `level`, the shares of the clusters of another level, as they are put together now.
        """
        return answer(backend.samples(since, level))

    @app.get("/v1/view", tags=["model"], response_model=schemas.View, responses=documented(404, 422))
    def view(x: Feature = None, y: Feature = None, level: Level = None) -> Response:
        """Leaves and clusters, of another level with `level`, over one or two features or two principal axes."""
        return answer(backend.view(x, y, level))


def add_lifecycle(app: FastAPI, backend: Backend, streams: EventStreams) -> None:
    """Add the route of lifecycle events."""

    @app.get(
        "/v1/events",
        tags=["model"],
        response_model=schemas.Events,
        responses=documented(422) | {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def events(request: Request, after: After = 0, limit: Limit = 100) -> Response:
        """Lifecycle events of clusters: born, died, split, merged.

        With `Accept: text/event-stream`, a stream of `lifecycle` events as they happen and a `status` event per second.
        """
        if "text/event-stream" not in request.headers.get("accept", ""):
            return answer(await run_in_threadpool(backend.events, after, limit))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if HEAD in request.scope:  # headers only: a stream would never end
            return Response(media_type="text/event-stream", headers=headers)
        last = request.headers.get("last-event-id", "")
        stream = streams.follow(int(last) if last.isdecimal() and len(last) < 16 else after)
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


def add_learning(app: FastAPI, backend: Backend) -> None:
    """Add the routes that receive events: predict and learn."""

    @app.post(
        "/v1/predict",
        tags=["model"],
        response_model=schemas.Prediction,
        responses=documented(404, 409, 422),
        openapi_extra={"requestBody": schemas.PREDICT},
    )
    async def predict(request: Request, level: Level = None) -> Response:
        """Cluster of each event, its probability, and the novelty of the event (-log p).

        409 if vectors have another number of values than there are features. `level`: ids of another level, a number of
        clusters or "fine".
        """
        body = await request.body()
        return answer(await run_in_threadpool(backend.predict, body, level))

    @app.post(
        "/v1/learn",
        tags=["model"],
        response_model=schemas.Learnt,
        responses=documented(409, 422),
        openapi_extra={"requestBody": schemas.LEARN},
    )
    async def learn(request: Request) -> Response:
        """Learn events. Invalid events are refused and listed in the response; the others are learnt.

        Only available in `streamclust serve`; a service with another source answers 409. 409 also if vectors have
        another number of values than there are features, or if there would be too many features.
        """
        body = await request.body()
        return answer(await run_in_threadpool(backend.learn, body))


def add_snapshots(app: FastAPI, backend: Backend, settings: Settings) -> None:
    """Add the routes of snapshots."""
    tags: list[Any] = ["snapshots"]

    @app.post(
        "/v1/snapshots",
        tags=tags,
        status_code=201,
        response_model=schemas.SnapshotSummary,
        responses=documented(409, 422),
        openapi_extra={"requestBody": schemas.SNAPSHOT},
    )
    async def take_snapshot(request: Request) -> Response:
        """Take a snapshot: the hierarchy of all events learnt so far."""
        method = requested_method(await request.body(), settings.snapshot.method)
        taken = await run_in_threadpool(backend.take_snapshot, method)
        return answer(taken.summary, 201, Location=f"/v1/snapshots/{taken.version}")

    @app.get("/v1/snapshots", tags=tags, response_model=list[schemas.SnapshotSummary])
    async def snapshots() -> Response:
        """Latest snapshots, the oldest first."""
        return answer([taken.summary for taken in backend.snapshots])

    @app.get(
        "/v1/snapshots/{version}",
        tags=tags,
        response_model=schemas.Snapshot,
        responses=documented(404, 422),
    )
    async def snapshot(version: Number) -> Response:
        """A snapshot with its tree."""
        taken = backend.snapshot(version)
        return answer(taken.summary | {"dendrogram": taken.dendrogram})

    @app.get(
        "/v1/snapshots/{version}/changes",
        tags=tags,
        response_model=schemas.SnapshotChanges,
        responses=documented(404, 422),
    )
    def changes(version: Number, since: Since) -> Response:
        """Changes of the clusters from an earlier snapshot (`since`) to this one, the largest clusters first."""
        return answer(backend.changes(version, since))


class NameBody(msgspec.Struct, forbid_unknown_fields=True):
    """Request body of PUT /v1/clusters/{id}/name."""

    name: Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)] | None


def requested_name(body: bytes) -> str | None:
    """Name in the body of a request."""
    try:
        return one_line(msgspec.json.decode(body, type=NameBody).name or "") or None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpProblem(422, f"the body cannot be read: {error}") from None


class SnapshotBody(msgspec.Struct, forbid_unknown_fields=True):
    """Request body of POST /v1/snapshots."""

    method: schemas.Method | msgspec.UnsetType = msgspec.UNSET


def requested_method(body: bytes, default: schemas.Method) -> schemas.Method:
    """Method in the body of a snapshot request, or the default."""
    if not body.strip():
        return default
    try:
        method = msgspec.json.decode(body, type=SnapshotBody).method
        return default if isinstance(method, msgspec.UnsetType) else method
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpProblem(422, f"the body cannot be read: {error}") from None
