"""Predicting over HTTP: vectors a second, beside the usual way to do it; and what a dashboard costs the stream.

Three servers, one process each, answer the same requests of 1,000 vectors: `streamclust serve` (cluster, probability
and novelty of each), FastAPI with pydantic rows and River's KMeans, FastAPI with a list of lists and scikit-learn's
MiniBatchKMeans (of both the cluster alone). They take turns, and each is measured by the processor time of its process,
which is vectors a second on one core; what a waiting client saw (by the wall) is beside it.

Then a service learns without end, in turn without HTTP, with it, and with a client that asks every second for all
that the dashboard shows. How much slower that makes it drowns in noise on a machine that does other things too; the
share of the processor time that goes to the threads of HTTP does not. Figures are medians over the rounds.

    python benchmarks/http_predict.py             D = 2, 8, 20
    python benchmarks/http_predict.py --quick     D = 8, fewer rounds
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from pydantic import BaseModel

K, TAUGHT, SIZE = 10, 20_000, 1000
SHOWN = (
    "/v1/status",
    "/v1/clusters",
    "/v1/events?after=0",
    "/v1/history?since={since}",
    "/v1/view",
    "/v1/snapshots",
)
"""What the dashboard asks for."""


def points(d: int, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = 10 * np.random.default_rng(0).normal(size=(K, d))
    return centres[rng.integers(K, size=n)] + rng.normal(size=(n, d))


# -------------------------------------------------------------------- servers


class Rows(BaseModel):
    """The body of a request to River's."""

    rows: list[dict[str, float]]


def serve_peer(kind: str, d: int, port: int) -> None:
    """The usual way."""
    import uvicorn
    from fastapi import FastAPI

    app = FastAPI()
    train = points(d, TAUGHT, seed=1)
    if kind == "river":
        from river.cluster import KMeans

        model = KMeans(n_clusters=K, seed=1)
        for row in train.tolist():
            model.learn_one({f"x{i}": value for i, value in enumerate(row)})

        @app.post("/predict")
        def predict_rows(body: Rows) -> list[int]:
            return [model.predict_one(row) for row in body.rows]

    else:
        from sklearn.cluster import MiniBatchKMeans

        batch = MiniBatchKMeans(K, random_state=1, n_init=1).fit(train)

        @app.post("/predict")
        def predict_table(vectors: list[list[float]]) -> list[int]:
            labels: list[int] = batch.predict(np.array(vectors)).tolist()
            return labels

    app.get("/readyz")(lambda: True)
    uvicorn.run(app, port=port, log_level="warning")


@contextmanager
def process(*arguments: object) -> Iterator[psutil.Process]:
    running = subprocess.Popen([*map(str, arguments)], stderr=subprocess.DEVNULL)
    try:
        yield psutil.Process(running.pid)
    finally:
        running.terminate()
        running.wait()


def ready(port: int) -> HTTPConnection:
    """A connection to a server, once it answers."""
    for _ in range(600):
        try:
            link = HTTPConnection("127.0.0.1", port, timeout=300)
            link.request("GET", "/readyz")
            answer = link.getresponse()
            answer.read()
            if answer.status == 200:
                link.close()  # opens again by itself; servers close those that nobody uses for a while
                return link
        except OSError:
            pass
        time.sleep(0.2)
    raise TimeoutError(f"nobody answers at port {port}")


def ask(link: HTTPConnection, path: str, body: bytes | None = None) -> bytes:
    link.request("GET" if body is None else "POST", path, body, {"Content-Type": "application/json"})
    answer = link.getresponse()
    content = answer.read()
    assert answer.status == 200, content
    return content


# -------------------------------------------------------------------- predicting


def compare(d: int, rounds: int, requests: int, port: int) -> None:
    rows = points(d, SIZE, seed=2)
    names = [f"x{i}" for i in range(d)]
    objects = [dict(zip(names, row, strict=True)) for row in rows.tolist()]
    table = json.dumps({"vectors": rows.tolist()}).encode()
    here = Path(sys.executable).parent
    ours = [here / "streamclust", "serve", "--http", port]
    peer = [sys.executable, __file__, "--features", d, "--serve"]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(process(*each))
            for each in (ours, [*peer, "river", "--port", port + 1], [*peer, "sklearn", "--port", port + 2])
        ]
        links = [ready(port + i) for i in range(3)]
        for chunk in np.array_split(points(d, TAUGHT, seed=1), 4):
            ask(links[0], "/v1/learn", json.dumps({"vectors": chunk.tolist(), "features": names}).encode())
        asked = {
            "streamclust, a table": (0, "/v1/predict", table),
            "streamclust, objects": (0, "/v1/predict", json.dumps(objects).encode()),
            "FastAPI + pydantic + River KMeans": (1, "/predict", json.dumps({"rows": objects}).encode()),
            "FastAPI + scikit-learn MiniBatchKMeans": (2, "/predict", json.dumps(rows.tolist()).encode()),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
        for turn in range(rounds + 1):
            for name, (i, path, body) in asked.items():
                n = max(1, requests // 10) if i == 1 else requests
                links[i].close()
                cpu, start = sum(servers[i].cpu_times()[:2]), time.perf_counter()
                for _ in range(n):
                    ask(links[i], path, body)
                spent = sum(servers[i].cpu_times()[:2]) - cpu, time.perf_counter() - start
                if turn:  # the first warms up
                    found[name].append((n * SIZE / max(spent[0], 0.01), n * SIZE / spent[1]))
    best = median(cpu for cpu, _ in found["streamclust, a table"])
    for name, rates in found.items():
        per_cpu = [cpu for cpu, _ in rates]
        print(
            f"{d:>3}  {name:<40} {median(per_cpu):>10,.0f}  ({min(per_cpu):,.0f} to {max(per_cpu):,.0f})"
            f"   {median(wall for _, wall in rates):>10,.0f}   {best / median(per_cpu):6.1f}x",
            flush=True,
        )


# -------------------------------------------------------------------- what a dashboard costs


def poll(port: int) -> None:
    """Ask for everything every second, until ended."""
    link, since = ready(port), 0.0
    for second in itertools.count(1):
        due = time.monotonic() + 1.0
        for path in SHOWN:
            content = ask(link, path.format(since=since))
            if "history" in path and (at := json.loads(content)["at"]):
                since = at[-1]
        if second == 1:
            print("asking", flush=True)
        time.sleep(max(0.0, due - time.monotonic()))


def slowdown(d: int, rounds: int, seconds: float, port: int) -> None:
    from streamclust import StreamClusterer
    from streamclust_connectors.http.server import serving
    from streamclust_connectors.service import Service
    from streamclust_connectors.settings import load
    from streamclust_connectors.sinks import LinesSink
    from streamclust_connectors.sources import IteratorSource, SyntheticSource

    values = list(SyntheticSource(d, n_events=200_000, seed=1).values())

    class Endless(IteratorSource):
        def values(self) -> Iterator[bytes]:
            return itertools.cycle(values)

    service = Service(Endless("events"), LinesSink(None, ()), StreamClusterer())
    settings = load(overrides={"http": {"port": port}, "source": {"kind": "synthetic"}})
    loop = threading.Thread(target=service.run)
    loop.start()

    def rate() -> tuple[float, float, float]:
        learnt, start = service.stats.events, time.perf_counter()
        cpu, http = time.process_time(), http_seconds()
        time.sleep(seconds)
        learnt, cpu = service.stats.events - learnt, time.process_time() - cpu
        return learnt / cpu, learnt / (time.perf_counter() - start), (http_seconds() - http) / cpu

    def polled() -> Any:  # noqa: ANN401
        stack = ExitStack()
        stack.enter_context(serving(service, settings))
        asking = subprocess.Popen(
            [sys.executable, __file__, "--poll", "--port", str(port)], stdout=subprocess.PIPE
        )
        stack.callback(asking.wait)
        stack.callback(asking.terminate)
        assert asking.stdout is not None
        asking.stdout.readline()  # it has asked for the first time
        return stack

    conditions: dict[str, Callable[[], Any]] = {
        "no HTTP": nullcontext,
        "HTTP, nobody asks": lambda: serving(service, settings),
        "a dashboard asks every second": polled,
    }
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in conditions}
    try:
        time.sleep(seconds)
        for turn in range(rounds + 1):
            for name in itertools.islice(itertools.cycle(conditions), turn, turn + len(conditions)):
                with conditions[name]():
                    time.sleep(0.5)
                    rates = rate()
                    if turn:
                        found[name].append(rates)
    finally:
        service.stop()
        loop.join()
    plain = found["no HTTP"]
    for name, rates in found.items():
        # Round by round: what else the machine does changes more from one to the next than within one.
        slower = [1 - mine[0] / base[0] for mine, base in zip(rates, plain, strict=True)]
        by_wall = [1 - mine[1] / base[1] for mine, base in zip(rates, plain, strict=True)]
        share = [each[2] for each in rates]
        print(
            f"{d:>3}  {name:<30} {median(each[0] for each in rates):>9,.0f} {median(each[1] for each in rates):>9,.0f}"
            f"   {median(share):6.1%} ({min(share):.1%} to {max(share):.1%})   slower by {median(slower):+.1%}"
            f" ({min(slower):+.1%} to {max(slower):+.1%}), by the wall {median(by_wall):+.1%}",
            flush=True,
        )


def http_seconds() -> float:
    """Processor time of the threads that answer requests. On one core it is what the loop goes without."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    threads = [
        t for t in psutil.Process().threads() if names.get(t.id, "").startswith(("streamclust-http", "AnyIO"))
    ]
    return sum(thread.user_time + thread.system_time for thread in threads)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="D = 8, three rounds")
    parser.add_argument("--port", type=int, default=8700, help="the first of three (default: 8700)")
    parser.add_argument("--part", choices=["predict", "slowdown"], help="one of the two alone")
    parser.add_argument("--features", type=int, help="one dimension instead")
    parser.add_argument("--serve", choices=["river", "sklearn"], help=argparse.SUPPRESS)
    parser.add_argument("--poll", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve_peer(arguments.serve, arguments.features, arguments.port)
        return
    if arguments.poll:
        poll(arguments.port)
        return
    dimensions = [arguments.features] if arguments.features else [8] if arguments.quick else [2, 8, 20]
    rounds, requests = (3, 40) if arguments.quick else (7, 100)
    if arguments.part != "slowdown":
        print(
            "  D  1,000 vectors a request                  vectors/s of processor time   by the wall    ratio"
        )
        for d in dimensions:
            compare(d, rounds, requests, arguments.port)
    if arguments.part != "predict":
        print("  D  learning without end         events/s by processor time, by the wall; HTTP's share of it")
        for d in dimensions:
            slowdown(d, rounds, 4.0 if arguments.quick else 8.0, arguments.port)


if __name__ == "__main__":
    main()
