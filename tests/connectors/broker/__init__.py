"""A real Kafka broker on loopback: one that runs already, or Apache Kafka's jars from Maven, or its Docker image."""

import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from tests.jars import Missing, fetched

POM = Path(__file__).with_name("pom.xml")
IMAGE = "apache/kafka:4.1.0"
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
QUICK = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
USER, PASSWORD = "tester", "secret-of-the-tests"
GUEST = "guest"
"""A user without any rights but those that a test gives."""
USERS = " ".join(f'user_{name}="{PASSWORD}"' for name in (USER, GUEST))
LOGIN = f"org.apache.kafka.common.security.plain.PlainLoginModule required {USERS};"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
OAUTH_LOGIN = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";'
)
PROTOCOLS = {"tls": "SSL", "sasl": "SASL_PLAINTEXT", "both": "SASL_SSL", "mutual": "SSL"}
"""Listeners of a secure broker, besides its plain one."""
START = 180.0
"""Seconds a broker may take to start on a busy machine."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class JavaBroker:
    """Kafka in KRaft mode, alone; its data lives as long as its directory, so it can be killed and started again.

    A secure one also listens with TLS, with passwords, and with both; `secure` says where, and whom to trust. There a
    guest has no rights. With a `quorum` (addresses of the controllers of all nodes) it is one node of a cluster.
    """

    def __init__(
        self,
        directory,
        secure=False,
        fast_start=True,
        node=1,
        quorum=(),
        cluster_id=None,
        settings=(),
        heap=512,
    ):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.node, self.quorum, self.more_settings = node, list(quorum), dict(settings)
        self.cluster_id = cluster_id or random_id()
        self.classpath = f"{fetched(POM, 'kafka')}/*"
        self.address = f"127.0.0.1:{free_port()}"
        self.secure = {name: f"127.0.0.1:{free_port()}" for name in PROTOCOLS} if secure else {}
        self.flags = [
            f"-Xmx{heap}m",
            QUIET,
            *(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] if fast_start else []),
        ]
        self.process = None
        self._configure()

    def _configure(self):
        controller = self.quorum[self.node - 1] if self.quorum else f"127.0.0.1:{free_port()}"
        advertised = [f"PLAINTEXT://{self.address}"]
        advertised += [f"{name.upper()}://{address}" for name, address in self.secure.items()]
        protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT"}
        protocols |= {name.upper(): protocol for name, protocol in PROTOCOLS.items()}
        settings = {
            "process.roles": "broker,controller",
            "node.id": self.node,
            "listeners": ",".join([*advertised, f"CONTROLLER://{controller}"]),
            "advertised.listeners": ",".join(advertised),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(":".join(pair) for pair in protocols.items()),
            "log.dirs": self.directory / "log",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
        }
        if self.quorum:
            settings["controller.quorum.voters"] = ",".join(
                f"{node}@{address}" for node, address in enumerate(self.quorum, 1)
            )
        else:
            settings["controller.quorum.bootstrap.servers"] = controller
        settings |= self.more_settings
        users = []
        if self.secure:
            settings |= self._locks()
            users = ["--add-scram", f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"]
        self.file = self.directory / "server.properties"
        self.file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        alone = [] if self.quorum else ["--standalone"]
        self._java(
            "kafka.tools.StorageTool", "format", *alone, "-t", self.cluster_id, "-c", self.file, *users
        )

    def _locks(self):
        """Settings of the secure listeners; makes the broker's key and writes its certificate beside it."""
        keys, certificate = self.directory / "keys.p12", self.directory / "broker.pem"
        store = ["-keystore", keys, "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "broker"]
        names = ["-dname", "CN=localhost", "-ext", "SAN=ip:127.0.0.1,dns:localhost", "-validity", "30"]
        _run("keytool", *QUICK, "-genkeypair", "-keyalg", "EC", *names, *store)
        _run("keytool", *QUICK, "-exportcert", "-rfc", "-file", certificate, *store)
        self.secure["certificate"] = str(certificate)
        return self._client_certificate() | {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{USER};User:CN={USER};User:oauth-client",
            "ssl.keystore.location": keys,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": PASSWORD,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.sasl.oauthbearer.sasl.jaas.config": OAUTH_LOGIN,
            "listener.name.both.oauthbearer.sasl.jaas.config": OAUTH_LOGIN,
            **{f"listener.name.{name}.plain.sasl.jaas.config": LOGIN for name in ("sasl", "both")},
            **{
                f"listener.name.{name}.scram-sha-512.sasl.jaas.config": SCRAM_LOGIN
                for name in ("sasl", "both")
            },
        }

    def _client_certificate(self):
        """A client's key and certificate, which the listener for mutual TLS trusts; none without openssl."""
        if not shutil.which("openssl"):
            return {}
        key, certificate, trusted = (
            self.directory / name for name in ("client.key", "client.pem", "trusted.p12")
        )
        new = ["-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate]
        _run("openssl", "req", "-x509", *new, "-days", "30", "-subj", f"/CN={USER}")
        store = ["-keystore", trusted, "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "client"]
        _run("keytool", *QUICK, "-importcert", "-noprompt", "-file", certificate, *store)
        self.secure |= {"client_key": str(key), "client_certificate": str(certificate)}
        mutual = {
            "ssl.client.auth": "required",
            "ssl.truststore.location": trusted,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.password": PASSWORD,
        }
        return {f"listener.name.mutual.{name}": value for name, value in mutual.items()}

    def _java(self, *arguments):
        _run("java", *self.flags, "-cp", self.classpath, *arguments)

    def start(self):
        self.launch()
        self.start_up()
        return self

    def start_up(self):
        """Wait until it answers."""
        wait_for(self.address)

    def launch(self):
        """Start the process, and do not wait until it answers."""
        with (self.directory / "output").open("a") as output:
            command = ["java", *self.flags, "-cp", self.classpath, "kafka.Kafka", self.file]
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
            )

    @property
    def stop_command(self):
        """What any process may run to stop it."""
        return ["kill", "-9", str(self.process.pid)]

    def forget(self):
        """Leave it to itself: whoever uses it last will stop it."""
        self.process.returncode = 0

    def kill(self):
        """As a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


class JavaBrokers:
    """Three nodes, each broker and controller; topics have three replicas, of which two must hold a record.

    `address` names all of them. Each node can be killed and started again.
    """

    secure = None

    def __init__(self, directory, n=3, fast_start=True, heap=256):
        quorum = [f"127.0.0.1:{free_port()}" for _ in range(n)]
        replicated = {
            f"{name}.replication.factor": n
            for name in ("default", "offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        }
        in_sync = dict.fromkeys(
            ("min.insync.replicas", "transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr"),
            n - 1,
        )
        settings = replicated | in_sync | {"broker.session.timeout.ms": 6000}
        cluster_id = random_id()
        self.nodes = [
            JavaBroker(
                Path(directory) / f"node-{node}",
                fast_start=fast_start,
                node=node,
                quorum=quorum,
                cluster_id=cluster_id,
                settings=settings,
                heap=heap,
            )
            for node in range(1, n + 1)
        ]
        self.address = ",".join(node.address for node in self.nodes)

    def start(self):
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            wait_for(node.address)
        return self

    def stop(self):
        for node in self.nodes:
            node.stop()


def random_id():
    """An id of a cluster of brokers."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "x")


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"a broker that starts: {command[0]} said {done.stdout[-300:]}{done.stderr[-500:]}")


class DockerBroker:
    """The official image, with its port on loopback."""

    secure = None

    def __init__(self):
        found = shutil.which("docker")
        if not found or subprocess.run([found, "info"], capture_output=True, check=False).returncode:
            raise Missing("a docker engine that runs")
        port = free_port()
        self.address, self.name = f"127.0.0.1:{port}", f"streamclust-{uuid.uuid4().hex[:8]}"

    def start(self):
        port = self.address.rpartition(":")[2]
        settings = {
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENERS": f"PLAINTEXT://:{port},CONTROLLER://:9093",
            "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{self.address}",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
        }
        options = [option for name, value in settings.items() for option in ("-e", f"{name}={value}")]
        command = ["docker", "run", "-d", "--rm", "--name", self.name, "-p", f"127.0.0.1:{port}:{port}"]
        done = subprocess.run([*command, *options, IMAGE], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"the image {IMAGE}: docker said {done.stderr[-300:]}")
        wait_for(self.address)
        return self

    @property
    def stop_command(self):
        return ["docker", "rm", "-f", self.name]

    def forget(self):
        pass

    def stop(self):
        subprocess.run(self.stop_command, capture_output=True, check=False)


class RunningBroker:
    """One that somebody else started."""

    secure = None
    stop_command = ("true",)

    def __init__(self, address):
        self.address = address

    def forget(self):
        pass

    def start(self):
        wait_for(self.address)
        return self

    def stop(self):
        pass


def wait_for(address):
    """Until the broker answers."""
    deadline = time.monotonic() + START
    host, _, port = address.split(",")[0].rpartition(":")
    while True:
        try:
            socket.create_connection((host, int(port)), 1).close()
            admin = KafkaAdminClient(bootstrap_servers=address, bootstrap_timeout_ms=5000)
        except (OSError, KafkaError):
            if time.monotonic() > deadline:
                raise Missing(f"a broker that answers at {address} within {START:.0f} s") from None
            time.sleep(0.1)
            continue
        with contextlib.closing(admin):
            admin.list_topics()
        return


def find_broker(directory, **options):
    """A broker that can be started here, the first of three kinds; Missing names what each of them lacks."""
    if address := os.environ.get("STREAMCLUST_TEST_KAFKA"):
        return RunningBroker(address)
    lacking = []
    for kind in (lambda: JavaBroker(directory, **options), DockerBroker):
        try:
            return kind()
        except Missing as error:
            lacking.append(str(error))
    raise Missing(
        "no Kafka broker for the tests: set STREAMCLUST_TEST_KAFKA to the bootstrap servers of one, or install "
        + ", or ".join(lacking)
    )
