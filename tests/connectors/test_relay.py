"""Outputs handed on: alerts posted to a receiver that fails at times, files of Parquet, processes that are killed."""

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kafka.errors import KafkaError

from streamclust_connectors.interfaces import Message
from streamclust_connectors.output_records import AssignmentOutput, LifecycleOutput
from streamclust_connectors.relay.parquet_archive import ParquetArchive, TopicFiles
from streamclust_connectors.relay.webhooks import Receiver, Selection, Webhooks
from tests.connectors.cluster import until

COMMAND = Path(sys.executable).with_name("streamclust")
SECRET = "hunter2-and-more"


class Hook:
    """A receiver that keeps what it takes; `answers` come first, then 200."""

    def __init__(self, answers=()):
        self.answers, self.taken, self.asked = list(answers), [], 0
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.asked += 1
                status = hook.answers.pop(0) if hook.answers else 200
                if status == 200:
                    hook.taken.append((self.headers, body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def ids(self):
        return [json.loads(body)["id"] for _, body in self.taken]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def hook():
    found = Hook()
    yield found
    found.stop()


class Log:
    """Topics in memory, as `OutputTopics` reads them."""

    def __init__(self, **topics):
        self.records = {
            (name, 0): [
                Message(i, json.dumps(value).encode(), None, (), 1000 * i) for i, value in enumerate(values)
            ]
            for name, values in topics.items()
        }
        self.offsets, self._at = {}, {}

    def partitions(self):
        return list(self.records)

    def committed(self, name):
        return self.offsets.get(name)

    def end(self, name):
        return len(self.records[name])

    def seek(self, positions):
        self._at = dict(positions)

    def poll(self, _seconds):
        for name, records in self.records.items():
            fresh = records[self._at[name] :][:7]
            self._at[name] += len(fresh)
            if fresh:
                yield name, fresh

    def commit(self, positions):
        self.offsets |= positions


def lifecycle(i, kind="born"):
    return {"id": f"c{i}", "kind": kind, "at": i, "version": 1, "parents": [], "children": [[i, 5.0]]}


def assignment(i, novelty):
    return {"id": f"e{i}", "cluster": 1, "probability": 1.0, "novelty": novelty, "version": 1, "revision": 0,
            "key": i, "time": None}  # fmt: skip


def relayed(log, receiver, polls=6, **settings):
    channels = {"lifecycle": ("lifecycle", json.loads), "assignments": ("assignments", json.loads)}
    selection = Selection(frozenset({"born", "split"}), 20.0)
    found = Webhooks(log, channels, selection, receiver, sleep=lambda _: None, **settings)
    found.start()
    for _ in range(polls):
        found.run_once(0.0)
    return found


def test_alerts_are_selected_signed_and_posted_once(hook):
    log = Log(
        lifecycle=[lifecycle(0), lifecycle(1, "died"), lifecycle(2, "split"), lifecycle(0)],
        assignments=[assignment(0, 19.9), assignment(1, 20.0), assignment(2, None), [assignment(3, 99.0)]],
    )
    log.offsets = dict.fromkeys(log.records, 0)
    done = relayed(log, Receiver(hook.url, SECRET))
    assert sorted(hook.ids) == ["lifecycle-c0", "lifecycle-c2", "novelty-e1", "novelty-e3"]
    assert (done.posted, done.repeated, done.abandoned) == (4, 1, 0)
    for headers, body in hook.taken:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        wanted = base64.b64encode(hmac.digest(SECRET.encode(), signed, hashlib.sha256)).decode()
        assert headers["webhook-signature"] == f"v1,{wanted}"
        assert abs(time.time() - int(headers["webhook-timestamp"])) < 60
    content = {json.loads(body)["id"]: json.loads(body) for _, body in hook.taken}
    assert content["lifecycle-c2"] == {
        "id": "lifecycle-c2",
        "type": "lifecycle.split",
        "data": lifecycle(2, "split"),
    }


def test_a_restart_posts_nothing_again_though_the_service_does(hook):
    log = Log(lifecycle=[lifecycle(i) for i in range(5)], assignments=[])
    log.offsets = dict.fromkeys(log.records, 0)
    relayed(log, Receiver(hook.url))
    log.records["lifecycle", 0] += [Message(5 + i, json.dumps(lifecycle(i)).encode()) for i in range(3, 8)]
    again = relayed(log, Receiver(hook.url))
    assert hook.ids == [f"lifecycle-c{i}" for i in range(8)]
    assert again.repeated == 2


def test_a_new_group_posts_what_comes(hook):
    log = Log(lifecycle=[lifecycle(i) for i in range(5)], assignments=[])
    relayed(log, Receiver(hook.url))
    assert hook.ids == []
    log.records["lifecycle", 0].append(Message(5, json.dumps(lifecycle(5)).encode()))
    relayed(log, Receiver(hook.url))
    assert hook.ids == ["lifecycle-c5"]


def test_an_alert_that_is_not_taken_is_posted_again_and_in_order(hook):
    hook.answers = [500, 429, 404, 200, 503]
    log = Log(lifecycle=[lifecycle(0), lifecycle(1)], assignments=[])
    log.offsets = dict.fromkeys(log.records, 0)
    relayed(log, Receiver(hook.url))
    assert (hook.ids, hook.asked) == (["lifecycle-c0", "lifecycle-c1"], 6)


def test_an_alert_is_given_up_after_a_time(hook, caplog):
    hook.answers = [500] * 3
    log = Log(lifecycle=[lifecycle(0), lifecycle(1), lifecycle(2), lifecycle(3)], assignments=[])
    log.offsets = dict.fromkeys(log.records, 0)
    done = relayed(log, Receiver(hook.url), give_up_seconds=1e-9)
    assert (hook.ids, done.abandoned) == (["lifecycle-c3"], 3)
    assert "lifecycle-c0 was given up" in caplog.text


def test_what_others_have_written_is_skipped(hook, tmp_path):
    log = Log(lifecycle=[lifecycle(0)], assignments=[])
    log.records["lifecycle", 0] = [Message(0, b"oops"), Message(1, None), *(
        Message(2, record.value) for record in log.records["lifecycle", 0]
    )]  # fmt: skip
    log.offsets = dict.fromkeys(log.records, 0)
    relayed(log, Receiver(hook.url))
    assert hook.ids == ["lifecycle-c0"]
    archive = archived(log, tmp_path)
    archive.finish()
    assert [row["id"] for row in rows_of(tmp_path / "lifecycle")] == ["c0"]


# -------------------------------------------------------------------- Parquet


def archived(log, directory, polls=20):
    kinds = {"assignments": AssignmentOutput, "lifecycle": LifecycleOutput}
    files = {name: TopicFiles(directory / name, kinds[name], json.loads) for name, _ in log.records}
    found = ParquetArchive(log, files)
    found.start()
    for _ in range(polls):
        found.run_once(0.0)
    return found


def rows_of(directory):
    return [row for path in sorted(directory.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def test_rows_are_the_messages(tmp_path):
    log = Log(
        assignments=[assignment(0, 1.5), [assignment(1, None), assignment(2, 2.0) | {"key": {"a": 1}}]],
        lifecycle=[lifecycle(3)],
    )
    archived(log, tmp_path).finish()
    found = rows_of(tmp_path / "assignments")
    assert [(row["id"], row["key"], row["novelty"], row["message_offset"]) for row in found] == [
        ("e0", "0", 1.5, 0), ("e1", "1", None, 1), ("e2", '{"a":1}', 2.0, 1),
    ]  # fmt: skip
    assert found[1]["message_time"].timestamp() == 1.0
    (change,) = rows_of(tmp_path / "lifecycle")
    assert (change["children"], change["child_weights"], change["parents"]) == ([3], [5.0], [])


def test_a_restart_goes_on_behind_the_last_file(tmp_path):
    values = [assignment(i, float(i)) for i in range(40)]
    first = archived(Log(assignments=values[:20], lifecycle=[]), tmp_path)
    first.finish()
    archived(Log(assignments=values[:33], lifecycle=[]), tmp_path)  # killed before it wrote
    (tmp_path / "assignments" / "0-0-9.part").write_bytes(b"half")
    archived(Log(assignments=values, lifecycle=[]), tmp_path).finish()
    assert [row["id"] for row in rows_of(tmp_path / "assignments")] == [f"e{i}" for i in range(40)]
    assert sorted(path.suffix for path in (tmp_path / "assignments").iterdir()) == [".parquet"] * 2


# -------------------------------------------------------------------- on Kafka


@pytest.fixture
def started(cluster, tmp_path):
    processes = []

    def start(*arguments):
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("STREAMCLUST_")
        }
        environment["STREAMCLUST_WEBHOOK__SECRET"] = SECRET
        with (tmp_path / f"log-{len(processes)}").open("w") as log:
            command = [COMMAND, *arguments, "--bootstrap-servers", cluster.address]
            processes.append(subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=log, stderr=log))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_webhooks_on_a_broker_through_a_kill(cluster, started, hook):
    topic = cluster.topic()
    name = cluster.topic("in.lifecycle")
    arguments = ("webhooks", "--topic", topic, "--url", hook.url, "--set", f"kafka.group_id={cluster.name}")
    process = started(*arguments)
    until("the first offsets", lambda: 0 in offsets(cluster, name))
    cluster.write(name, [json.dumps(lifecycle(i)).encode() for i in range(10)])
    until("the first alerts", lambda: len(hook.taken) >= 10)
    hook.answers = [503] * 5
    cluster.write(name, [json.dumps(lifecycle(i)).encode() for i in range(8, 14)])  # two of them again
    until("a refusal", lambda: len(hook.answers) < 5)
    process.kill()
    process.wait()
    process = started(*arguments)
    until("the last alerts", lambda: len(set(hook.ids)) == 14)
    process.terminate()
    assert process.wait(30) == 0
    assert hook.ids == [f"lifecycle-c{i}" for i in range(14)]


def offsets(cluster, topic):
    try:
        found = cluster.admin.list_group_offsets([f"{cluster.name}.webhooks"])[f"{cluster.name}.webhooks"]
    except KafkaError:  # the broker's first group
        return {}
    return {name.partition: at.offset for name, at in found.items() if name.topic == topic}


def test_an_archive_on_a_broker_through_a_kill(cluster, started, tmp_path):
    topic = cluster.topic()
    for channel in ("assignments", "lifecycle"):
        cluster.topic(f"in.{channel}", 2)
    values = [json.dumps(assignment(i, 1.0)).encode() for i in range(300)]
    arguments = ("archive", "found", "--topic", topic, "--seconds", "0.3")
    process = started(*arguments)
    cluster.write(f"{topic}.assignments", values[:100], 0)
    until("a file", lambda: list(tmp_path.glob(f"found/{topic}.assignments/*.parquet")))
    cluster.write(f"{topic}.assignments", values[100:200], 1)
    process.kill()
    process.wait()
    cluster.write(f"{topic}.assignments", values[200:], 0)
    process = started(*arguments)
    directory = tmp_path / "found" / f"{topic}.assignments"
    until("all rows", lambda: len(rows_of(directory)) >= 300)
    process.terminate()
    assert process.wait(30) == 0
    assert sorted(row["key"] for row in rows_of(directory)) == sorted(str(i) for i in range(300))
