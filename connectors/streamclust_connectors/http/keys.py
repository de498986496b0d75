"""Routes of a service with a model for each key: `?key=` names the model."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from streamclust import __version__
from streamclust.streaming import StreamClusterer
from streamclust_connectors.http import schemas
from streamclust_connectors.http.backend import Backend, Predicted, assigned, cluster_json, memory
from streamclust_connectors.http.cached_value import LOCK_TIMEOUT_SECONDS
from streamclust_connectors.http.problems import HttpProblem, documented
from streamclust_connectors.interfaces import Partition
from streamclust_connectors.service.key_models import KeyModels

Key = Annotated[str, Query(description="Key of the model.")]
InPartition = Annotated[
    int | None,
    Query(ge=0, description="Partition, if the key has a model in several; by default the only one."),
]
Limit = Annotated[int, Query(ge=1, le=10_000)]


class KeyAccess:
    """Thread-safe access to the models of keys; each request waits for the batch that is learnt now."""

    def __init__(self, backend: Backend, models: KeyModels) -> None:
        self.backend, self.models = backend, models

    def status(self) -> dict[str, Any]:
        """Status of the service."""
        stats = self.backend.service.stats
        return {
            "version": __version__,
            "ready": stats.ready,
            "not_ready": stats.not_ready,
            "events": self.models.n_seen,
            "events_per_second": stats.rate,
            "dead_letters": stats.dead_letters,
            "lag_total": sum(stats.lag.values()) if stats.lag else None,
            "memory_bytes": memory(),
            "last_checkpoint_age_seconds": self.backend.checkpoint_age,
            "source": self.backend.source,
            "keys": self.models.n_keys,
            "keys_in_memory": self.models.n_live,
        }

    def keys(self, after: str, limit: int) -> dict[str, Any]:
        """Keys in their order, as of the last checkpoint."""
        with self.backend.service.lock.within(LOCK_TIMEOUT_SECONDS):
            found = [
                {"key": known.key, "partition": number, "events": known.events, "n_clusters": known.clusters}
                for topic, number in self.models.partitions
                for known in self.models.database((topic, number)).keys(limit, after)
            ]
        found.sort(key=lambda one: (one["key"], one["partition"]))
        last = found[limit - 1]["key"] if len(found) >= limit else None
        return {"keys": [one for one in found if last is None or str(one["key"]) <= str(last)], "next": last}

    def clusters(self, key: str, number: int | None) -> dict[str, Any]:
        """Clusters of a key's model, the heaviest first."""
        with self.backend.service.lock.within(LOCK_TIMEOUT_SECONDS):
            partition, model = self._model(key, number)
            published = model.model
            return {
                "key": key,
                "partition": partition[1],
                "events": model.n_seen,
                "model_version": None if published is None else published.version,
                "clusters": [cluster_json(cluster, model.n_seen, {}) for cluster in model.clusters],
                "lifecycle": [change.to_dict() for change in model.events],
            }

    def predict(self, body: bytes, key: str, number: int | None) -> Predicted:
        """Cluster of each event of a request, by a key's model."""
        with self.backend.service.lock.within(LOCK_TIMEOUT_SECONDS):
            _, model = self._model(key, number)
            return assigned(model, model.model, self.backend.read, body)

    def _model(self, key: str, number: int | None) -> tuple[Partition, StreamClusterer]:
        """The partition and the model of a key."""
        places = [name for name in self.models.partitions_of(key) if number in (None, name[1])]
        if not places:
            raise HttpProblem(404, f"there is no model of key {key!r} here; see /v1/keys")
        if len(places) > 1:
            numbers = ", ".join(str(name[1]) for name in places)
            raise HttpProblem(
                409, f"key {key!r} has a model in each of the partitions {numbers}; give ?partition="
            )
        found = self.models.peek(places[0], key)
        assert found is not None
        return places[0], found


def add_keys(app: FastAPI, backend: Backend, models: KeyModels) -> None:
    """Add the routes of a service with a model for each key."""
    access = KeyAccess(backend, models)

    def answer(content: object) -> Response:
        return Response(msgspec.json.encode(content), media_type="application/json")

    @app.get("/v1/status", tags=["keys"], response_model=schemas.KeyStatus)
    def status() -> Response:
        """Status of the service."""
        return answer(access.status())

    @app.get("/v1/keys", tags=["keys"], response_model=schemas.Keys, responses=documented(422))
    def keys(after: str = "", limit: Limit = 1000) -> Response:
        """Keys with a model, in their order, as of the last checkpoint; `next` is `after` of the next request."""
        return answer(access.keys(after, limit))

    @app.get(
        "/v1/clusters", tags=["keys"], response_model=schemas.KeyClusters, responses=documented(404, 409, 422)
    )
    def clusters(key: Key, partition: InPartition = None) -> Response:
        """Clusters of a key's model, the heaviest first, and its lifecycle events."""
        return answer(access.clusters(key, partition))

    @app.post(
        "/v1/predict",
        tags=["keys"],
        response_model=schemas.Prediction,
        responses=documented(404, 409, 422),
        openapi_extra={"requestBody": schemas.PREDICT},
    )
    async def predict(request: Request, key: Key, partition: InPartition = None) -> Response:
        """Cluster of each event under a key's model, its probability, and the novelty of the event."""
        return answer(await run_in_threadpool(access.predict, await request.body(), key, partition))
