"""Registers the transport in each process of the tests, also in those that know only the URL of the broker."""

import pqbridge.celery as _registers  # noqa: F401
