"""A PostgreSQL database for the tests that need one."""

import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from tests.postgres_server import server_url


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Its address: an empty database of these tests alone."""
    name = f"tools_{uuid.uuid4().hex}"
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
        yield urlunsplit(urlsplit(server_url())._replace(path=f"/{name}"))
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
