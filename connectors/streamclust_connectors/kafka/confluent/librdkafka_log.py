"""Logger of the lines that librdkafka writes itself: several for each lost connection."""

import logging

log = logging.getLogger("librdkafka")
