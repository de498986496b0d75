"""The API. Answers go out as msgspec writes them: numbers that JSON cannot hold become null."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from prometheus_client.exposition import choose_encoder
from starlette.concurrency import run_in_threadpool

from streamclust import __version__
from streamclust.streaming import StreamClusterer
from streamclust_connectors.checkpointing import unsaved
from streamclust_connectors.http import dashboard, schemas
from streamclust_connectors.http.backend import Backend
from streamclust_connectors.http.docs import HEADERS, page
from streamclust_connectors.http.metrics import registry
from streamclust_connectors.http.problems import HttpProblem, documented, install
from streamclust_connectors.http.security import HEAD, Gate
from streamclust_connectors.http.streams import Streams
from streamclust_connectors.settings import Settings

MAX_JSON_INTEGER = 2**53
"""Largest integer that every JSON parser represents exactly."""
Number = Annotated[int, Path(ge=0, le=MAX_JSON_INTEGER)]
After = Annotated[int, Query(ge=0, le=MAX_JSON_INTEGER, description="Only what came after this `seq`.")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Feature = Annotated[str | None, Query(description="A feature; principal axes if neither is named.")]


def create_app(backend: Backend, settings: Settings) -> FastAPI:
    """The application of one service; of one that learns features, health and metrics alone."""
    if not isinstance(backend.service.learner, StreamClusterer):
        return features_app(backend, settings)
    streams = Streams(backend, settings.http.max_streams)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        sampling = asyncio.create_task(streams.run())
        yield
        streams.close()
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling

    app = FastAPI(
        title="streamclust",
        version=__version__,
        description="Streaming clustering that learns the number of clusters.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=documented(401, 403, 413, 503),
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.streams = streams
    install(app)
    app.add_middleware(Gate, settings=settings.http)
    add_health(app, backend, settings)
    add_model(app, backend)
    add_events(app, backend, streams)
    add_learning(app, backend)
    add_snapshots(app, backend, settings)
    app.include_router(dashboard.router())
    return app


def features_app(backend: Backend, settings: Settings) -> FastAPI:
    """Health and metrics of a service that learns features, which go to its outputs."""
    app = FastAPI(
        title="streamclust",
        version=__version__,
        description="The features of a stream.",
        docs_url=None,
        redoc_url=None,
        responses=documented(401, 403, 413, 503),
        generate_unique_id_function=lambda route: route.name,
    )
    install(app)
    app.add_middleware(Gate, settings=settings.http)
    add_health(app, backend, settings)
    return app


def answer(content: object, status: int = 200, **headers: str) -> Response:
    """Content as JSON."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def add_health(app: FastAPI, backend: Backend, settings: Settings) -> None:
    """Add the routes of health checks, metrics and documentation."""
    metrics = registry(backend)

    @app.get("/livez", tags=["health"], response_model=schemas.Alive)
    async def livez() -> Response:
        """Whether the loop turns."""
        age, limit = backend.service.stats.age, settings.health.max_age_seconds
        if age > limit:
            raise HttpProblem(503, f"the loop last turned {age:.0f} s ago, which is more than {limit:g} s")
        return answer({"heartbeat_age_seconds": age})

    @app.get("/readyz", tags=["health"], response_model=schemas.Ready)
    async def readyz() -> Response:
        """Whether partitions have their state and a model, checkpoints can be written, and refits succeed."""
        stats = backend.service.stats
        group = backend.service.group
        if not stats.ready:
            why = "the service is starting or stopping"
            if group is not None and stats.positions and not group.ready:
                why = "the group has no model yet"
            raise HttpProblem(503, why, {"Retry-After": "1"})
        limit = settings.group.max_staleness_seconds
        if group is not None and (age := group.staleness or 0.0) > limit:
            raise HttpProblem(
                503, f"the model is {age:.0f} s old, which is more than {limit:g} s", {"Retry-After": "10"}
            )
        if stats.checkpoint_error:
            raise HttpProblem(503, f"the service goes on, but {unsaved(stats)}", {"Retry-After": "10"})
        if trouble := backend.refit_trouble:
            raise HttpProblem(503, f"the service goes on, but {trouble}", {"Retry-After": "10"})
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
        """How the service does."""
        return answer(backend.status())

    @app.get("/v1/clusters", tags=["model"], response_model=schemas.Clusters)
    def clusters() -> Response:
        """The clusters as of now, the heaviest first."""
        return answer(backend.clusters())

    @app.get(
        "/v1/clusters/{id}",
        tags=["model"],
        response_model=schemas.ClusterDetail | schemas.PastCluster,
        responses=documented(404, 422),
    )
    def cluster(id: Number) -> Response:
        """One cluster in detail: what sets it apart, its share over time, its lifecycle, some recent events.

        Of a cluster that has died, split or merged into another (`alive` is false) the past is told.
        """
        return answer(backend.cluster(id))

    @app.get("/v1/history", tags=["model"], response_model=schemas.ServiceHistory, responses=documented(422))
    def history(since: Annotated[float, Query(allow_inf_nan=False)] = 0.0) -> Response:
        """Figures of every second after a moment (seconds since 1970); of older ones fewer."""
        return answer(backend.history.since(since))

    @app.get("/v1/view", tags=["model"], response_model=schemas.View, responses=documented(404, 422))
    def view(x: Feature = None, y: Feature = None) -> Response:
        """Leaves and clusters over one or two features, or over the first two principal axes."""
        return answer(backend.view(x, y))


def add_events(app: FastAPI, backend: Backend, streams: Streams) -> None:
    """Add the route of lifecycle events."""

    @app.get(
        "/v1/events",
        tags=["model"],
        response_model=schemas.Events,
        responses=documented(422) | {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def events(request: Request, after: After = 0, limit: Limit = 100) -> Response:
        """What happened to clusters.

        With `Accept: text/event-stream` they come as they happen, as events `lifecycle`, and every second a `status`.
        """
        if "text/event-stream" not in request.headers.get("accept", ""):
            return answer(await run_in_threadpool(backend.events, after, limit))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if HEAD in request.scope:  # a stream has no end, and its header comes first
            return Response(media_type="text/event-stream", headers=headers)
        last = request.headers.get("last-event-id", "")
        stream = streams.follow(int(last) if last.isdecimal() and len(last) < 16 else after)
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


def add_learning(app: FastAPI, backend: Backend) -> None:
    """Add the routes that take events: predictions and learning."""

    @app.post(
        "/v1/predict",
        tags=["model"],
        response_model=schemas.Prediction,
        responses=documented(409, 422),
        openapi_extra={"requestBody": schemas.PREDICT},
    )
    async def predict(request: Request) -> Response:
        """The cluster of each event, how probable that is, and how novel the event is (-log p).

        409 if vectors have another number of values than there are features.
        """
        body = await request.body()
        return answer(await run_in_threadpool(backend.predict, body))

    @app.post(
        "/v1/learn",
        tags=["model"],
        response_model=schemas.Learnt,
        responses=documented(409, 422),
        openapi_extra={"requestBody": schemas.LEARN},
    )
    async def learn(request: Request) -> Response:
        """Learn events; those that cannot be learnt are refused, the others are learnt all the same.

        Only `streamclust serve` does: beside another source, events are that source's (409). 409 also if vectors have
        another number of values than there are features, or the features would become too many.
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
        """Take a snapshot: the hierarchy of everything learnt until now."""
        method = wanted_method(await request.body(), settings.snapshot.method)
        taken = await run_in_threadpool(backend.take_snapshot, method)
        return answer(taken.summary, 201, Location=f"/v1/snapshots/{taken.version}")

    @app.get("/v1/snapshots", tags=tags, response_model=list[schemas.SnapshotSummary])
    async def snapshots() -> Response:
        """The latest snapshots, the oldest first."""
        return answer([kept.summary for kept in backend.snapshots])

    @app.get(
        "/v1/snapshots/{version}",
        tags=tags,
        response_model=schemas.Snapshot,
        responses=documented(404, 422),
    )
    async def snapshot(version: Number) -> Response:
        """A snapshot with its tree."""
        kept = backend.snapshot(version)
        return answer(kept.summary | {"dendrogram": kept.dendrogram})


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request for a snapshot."""

    method: schemas.Method | msgspec.UnsetType = msgspec.UNSET


def wanted_method(body: bytes, usual: schemas.Method) -> schemas.Method:
    """The method that the body of a snapshot request names."""
    if not body.strip():
        return usual
    try:
        method = msgspec.json.decode(body, type=Wanted).method
        return usual if isinstance(method, msgspec.UnsetType) else method
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpProblem(422, f"the body cannot be read: {error}") from None
