"""Settings: what the service is told, by flags, by the environment, by a TOML file, in that order of precedence.

STREAMCLUST_KAFKA__TOPIC=events in the environment is `topic = "events"` under [kafka] in the file. Passwords come
from the environment, or from a file whose path is given as `<name>_file`; they are never shown.

>>> load(overrides={"engine": {"max_leaves": "256"}}).engine.max_leaves
256
>>> load(overrides={"kafka": {"topik": "events"}})
Traceback (most recent call last):
    ...
streamclust_connectors.settings.root.ConfigError: kafka.topik: there is no such setting; did you mean kafka.topic?
"""

from streamclust_connectors.settings.loading import load
from streamclust_connectors.settings.root import ConfigError, Settings
from streamclust_connectors.settings.showing import redacted, to_toml

__all__ = ["ConfigError", "Settings", "load", "redacted", "to_toml"]
