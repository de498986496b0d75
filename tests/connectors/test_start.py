"""What a service does not wait for when it starts."""

import subprocess
import sys
import threading

import pytest

from streamclust import StreamClusterer
from streamclust_connectors.cli import kernel_warm_up
from streamclust_connectors.cli.kernel_warm_up import use_once, warm_up
from streamclust_connectors.service import Service
from streamclust_connectors.settings import Settings
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource
from tests.connectors.cluster import until

SLOW = {"matplotlib", "pandas", "pyarrow", "sklearn", "scipy.optimize", "scipy.spatial", "scipy.stats"}


@pytest.mark.parametrize(
    "modules",
    [
        "streamclust.streaming",
        "streamclust_connectors.service, streamclust_connectors.state_directory",
        "streamclust_connectors.kafka, streamclust_connectors.kafka.confluent",
    ],
)
def test_packages_that_only_a_refit_needs_are_not_imported(modules):
    code = f"import sys, {modules}; print(*({SLOW!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


FIRST_EVENT = (
    "import sys; from streamclust import StreamClusterer; "
    "model = StreamClusterer(); model.learn_one({'x': 1.0}); model.predict_one({'x': 1.0}); print(*sys.modules)"
)


@pytest.mark.compiled
def test_the_first_event_of_a_stream_loads_nothing_that_only_others_need():
    """SciPy is for refits, numba's registries for compiling, its threads for nothing here."""
    for _ in range(2):  # the first may have to compile
        found = subprocess.run(
            [sys.executable, "-c", FIRST_EVENT], capture_output=True, text=True, check=True
        )
    loaded = set(found.stdout.split())
    assert "streamclust.engine" in loaded
    others = {"narwhals", "river.utils", "streamclust.hierarchy", "streamclust.plots"}
    of_scipy = {"scipy.integrate", "scipy.linalg", "scipy.sparse", "scipy.special", "numpy.f2py"}
    of_the_compiler = {"numba.np.linalg", "numba.cpython.mathimpl"}
    of_threads = {f"numba.np.ufunc.{layer}" for layer in ("omppool", "tbbpool", "workqueue")}
    assert loaded & (SLOW | others | of_scipy | of_the_compiler | of_threads) == set()


@pytest.mark.parametrize(
    "family", ["gaussian", "diagonal", "spherical", "multinomial", "bernoulli", "poisson"]
)
def test_kernels_are_warmed_up_whatever_the_family(family, recwarn):
    use_once(Settings(engine={"family": family}), strict=True)
    assert not recwarn.list


def test_a_service_is_alive_and_not_ready_while_kernels_compile(monkeypatch, caplog):
    """In mid-stream it would be neither for minutes, and its group would go on without it."""
    compiled = threading.Event()
    monkeypatch.setattr(kernel_warm_up, "use_once", lambda _: compiled.wait(60))
    monkeypatch.setattr(kernel_warm_up, "PATIENCE_SECONDS", 0.1)
    service = Service(MemorySource({("in", 0): []}), ListSink(), StreamClusterer())
    waiting = threading.Thread(target=warm_up, args=(service, Settings()))
    with caplog.at_level("INFO"):
        waiting.start()
        until("the log", lambda: "compiling kernels" in caplog.text)
        until("a heartbeat", lambda: service.stats.heartbeat_age < 1.0)
        assert waiting.is_alive()
        assert service.stats.not_ready == "the kernels are being loaded or compiled"
        compiled.set()
        waiting.join(60)
    assert "the kernels are ready after" in caplog.text


STUCK = """
import sys, time
from streamclust import StreamClusterer
from streamclust_connectors.service import Service
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource

class Stuck(MemorySource):
    def poll(self, seconds):
        print("polling", flush=True)
        until = time.monotonic() + 300
        while time.monotonic() < until:  # as a client that waits for its broker and heeds no signal
            time.sleep(0.1)

service = Service(Stuck({("in", 0): []}), ListSink(), StreamClusterer())
service.stop_on_signals(1.0)
service.run()
"""


def test_a_service_whose_client_waits_for_ever_ends_all_the_same():
    """As after a kill: the next start goes on from the last checkpoint."""
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "polling\n"
    process.terminate()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "stopping took longer than 1 s" in said
