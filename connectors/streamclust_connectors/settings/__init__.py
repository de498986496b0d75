"""Settings of the service, from flags, the environment and a TOML file, in this order of precedence.

STREAMCLUST_KAFKA__TOPIC=events in the environment equals `topic = "events"` under [kafka] in the file. Passwords come
from the environment, or from a file given as `<name>_file`; they are never printed.

>>> load(overrides={"engine": {"max_leaves": "256"}}).engine.max_leaves
256
>>> load(overrides={"kafka": {"topik": "events"}})
Traceback (most recent call last):
    ...
streamclust_connectors.settings.root.ConfigError: kafka.topik: there is no such setting; did you mean kafka.topic?
"""

from streamclust_connectors.settings.display import redacted, to_toml
from streamclust_connectors.settings.loading import load
from streamclust_connectors.settings.root import SCHEMA_FORMATS, ConfigError, Settings

__all__ = ["SCHEMA_FORMATS", "ConfigError", "Settings", "load", "redacted", "to_toml"]
