"""The broker of the connectors' tests."""

from tests.connectors.conftest import broker_address, cluster

__all__ = ["broker_address", "cluster"]
