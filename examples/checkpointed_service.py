"""A checkpointed service: killed with SIGKILL in mid-stream, again and again, and nothing is lost or counted twice.

`streamclust run` reads a file of JSON lines and keeps its state in a directory. As soon as it is under way it
is killed, and started anew. What one sees: where each life ended, and where the next went on; that every
event was learnt once; that every event's assignment was written; and that the state at the end is, bit for
bit, that of a service that nobody killed. The picture is the river of clusters, told as if nothing had
happened, with the kills as dashed lines.

Run it: python examples/checkpointed_service.py [--events N] [--kills N] [--quick] [--output DIR]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from streamclust import StreamClusterer
from streamclust.checkpoint import Checkpoints
from streamclust.checkpoint.files import encode
from streamclust_connectors.synthetic import Drift

COMMAND = Path(sys.executable).with_name("streamclust")
EVERY = 5000
"""Events between checkpoints."""


def main() -> None:
    """Parse the arguments, kill and restart, count, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000, help="how many events (default: 100,000)")
    parser.add_argument("--kills", type=int, default=3, help="how often it is killed (default: 3)")
    parser.add_argument("--quick", action="store_true", help="a short stream and one kill")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the picture goes")
    arguments = parser.parse_args()
    n, kills = (30_000, 1) if arguments.quick else (arguments.events, arguments.kills)

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_events(place / "events.jsonl", n)
        command = run_command(place, "state", "found.jsonl")
        print(
            "$ "
            + " ".join(str(word).replace(f"{place}/", "") for word in command).replace(
                str(COMMAND), "streamclust"
            )
        )
        ends = []
        for life in range(1, kills + 1):
            ends.append(kill_under_way(command, place / "state", max(1, n // (kills + 1) // EVERY)))
            print(f"life {life}   killed; the last checkpoint holds {ends[-1]:,} of {n:,} events")
        subprocess.run(command, check=True, capture_output=True)
        survivor = StreamClusterer.load(newest(place / "state"))
        print(f"life {kills + 1}   went on and came to the end: {survivor.n_seen:,} events learnt")
        told = [json.loads(line) for line in (place / "found.jsonl").open()]
        ids = [one["id"] for one in told if one["channel"] == "assignments"]
        print(
            f"told     {len(set(ids)):,} events were assigned; {len(ids) - len(set(ids)):,} of them were told again"
        )
        subprocess.run(run_command(place, "undisturbed", "again.jsonl"), check=True, capture_output=True)
        same = state_of(place / "state") == state_of(place / "undisturbed")
        print(
            f"state    {'the same, bit for bit, as' if same else 'DIFFERS from'} that of a service that nobody killed"
        )

    arguments.output.mkdir(parents=True, exist_ok=True)
    picture = arguments.output / "checkpointed_service.png"
    ax = survivor.lineage.plot()
    for end in ends:
        ax.axvline(end, color="black", linewidth=1.0, linestyle="--")
    ax.set_title(f"killed {kills} times (dashed)", loc="left", fontsize=10)
    ax.figure.savefig(picture, dpi=150)
    print(f"picture  {picture}")


def write_events(path: Path, n: int) -> None:
    """A drifting stream as JSON lines."""
    with path.open("w") as file:
        for rows, _ in Drift(n_features=2, n_events=n, seed=2).batches(10_000):
            file.writelines(f'{{"x": {x}, "y": {y}}}\n' for x, y in rows.round(4).tolist())


def run_command(place: Path, state: str, output: str) -> list[str | Path]:
    """The service, from the file of events to a file of what was found."""
    return [
        COMMAND, "run", "--input", place / "events.jsonl", "--output", place / output, "--state", place / state,
        "--set", f"checkpoint.every_events={EVERY}", "--set", "engine.refit_every=5000",
    ]  # fmt: skip


def kill_under_way(command: list[str | Path], state: Path, checkpoints: int) -> int:
    """Start the service, kill it some time after so many checkpoints; how many events the last one holds."""
    written = number(state) + checkpoints
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and number(state) < written:
        time.sleep(0.001)
    time.sleep(0.02)
    process.kill()
    process.wait()
    return StreamClusterer.load(newest(state)).n_seen


def number(state: Path) -> int:
    """The number of the latest checkpoint; they are numbered from 1."""
    path = newest(state)
    return 0 if path is None else int(path.stem)


def newest(state: Path) -> Path | None:
    """The latest checkpoint in a state directory."""
    return max((state / "0").glob("*.checkpoint"), default=None)


def state_of(directory: Path) -> bytes:
    """Everything a service knows, as bytes."""
    found = Checkpoints(directory / "0").latest()
    assert found is not None
    return encode(found)


if __name__ == "__main__":
    main()
