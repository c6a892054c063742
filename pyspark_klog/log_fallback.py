"""Prints the connector's log records to stderr while the user has configured no logging.

Spark configures no logging in the driver's Python process and in its Python workers. Python's
own fallback (`logging.lastResort`) prints the bare message, without time, level or logger.
"""

import logging
import sys

LOGGER = "pyspark_klog"
FORMAT = "%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"
"""Format of a log line, the same as the broker's."""


class FallbackHandler(logging.Handler):
    """Prints a log record to stderr if no other handler receives the record.

    The handler looks for other handlers at each record. So a handler that the user adds later
    takes over at once, and a `logging.NullHandler` silences the connector.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Print `record`, unless its logger or a parent up to the root has another handler."""
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
    """Log `message` at level INFO, and show it even where the user has configured no logging.

    Without a configuration INFO is off, and Spark's Python workers have no configuration. In that
    case the record goes directly to the FallbackHandler.
    """
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


def install_fallback_handler() -> None:
    """Add a FallbackHandler to the connector's logger, unless the logger has one already."""
    logger = logging.getLogger(LOGGER)
    if not any(isinstance(handler, FallbackHandler) for handler in logger.handlers):
        logger.addHandler(FallbackHandler())
