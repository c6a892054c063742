"""Where the connector's log records go while nobody has configured logging.

Spark configures none in the driver's Python and in its workers, and what logging does by itself is
to print bare words, without time, level or logger.
"""

import logging
import sys

LOGGER = "pyspark_klog"
FORMAT = "%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"
"""As the broker logs."""


class FallbackHandler(logging.Handler):
    """Prints to stderr the records that no other handler takes, and no others.

    Whether there is one is seen anew for each record: a user's own handlers count from the moment
    on in which they are added, and a `logging.NullHandler` silences.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Print it, unless a handler on its way to the root has it as well."""
        if self._is_taken(record):
            return
        stream = sys.stderr
        if stream is None:
            return
        try:
            stream.write(self.format(record) + "\n")
            stream.flush()
        except Exception:
            self.handleError(record)

    def _is_taken(self, record: logging.LogRecord) -> bool:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


def log_notice(logger: logging.Logger, message: str, *args: object) -> None:
    """Log a line at level INFO that a user should see who has configured no logging: without a
    configuration INFO is off, and Spark's Python workers have none."""
    if logger.isEnabledFor(logging.INFO):
        logger.info(message, *args)
        return
    connector = logging.getLogger(LOGGER)
    if connector.level != logging.NOTSET:
        return
    place = (logger.name, logging.INFO, __file__, 0)
    record = logger.makeRecord(*place, message, args, None)
    for handler in connector.handlers:
        if isinstance(handler, FallbackHandler):
            handler.handle(record)


def install() -> None:
    """Give the connector's logger the handler, once in a process."""
    logger = logging.getLogger(LOGGER)
    if not any(isinstance(handler, FallbackHandler) for handler in logger.handlers):
        logger.addHandler(FallbackHandler())
