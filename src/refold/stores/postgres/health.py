"""How a server stands: what a commit survives, how far the schema is, and what keeps old rows alive."""

from refold.ports import Health
from refold.stores.postgres.connection import Session
from refold.stores.postgres.migrate import newest, stored_version

SHARED = "behind a pooler that shares them by transactions"
SERVER = """
    select current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
        current_setting('synchronous_commit'), current_setting('data_checksums'), pg_is_in_recovery(),
        current_setting('default_transaction_read_only'),
        coalesce((select sum(pg_total_relation_size(c.oid)) from pg_class c
            join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = %s and c.relkind in ('r', 'p', 'S')), 0)::bigint,
        (select count(*) from pg_stat_replication),
        (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum'))"""
DEAD_ROWS = """
    select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_user_tables where schemaname = %s"""
OLDEST_SNAPSHOT = """
    select coalesce(max(age(backend_xmin)), 0), coalesce(max(extract(epoch from now() - xact_start)), 0)::bigint
    from pg_stat_activity where backend_xmin is not null and pid <> pg_backend_pid()"""


def examine(session: Session, thorough: bool = False) -> Health:
    schema = session.address.schema
    version = stored_version(session)
    (row,) = session.rows(SERVER, schema)
    release, fsync, full_pages, synchronous, checksums, is_replica, read_only, size, replicas, synchronous_ones = row
    (dead,) = session.rows(DEAD_ROWS, schema)
    (snapshot,) = session.rows(OLDEST_SNAPSHOT)
    return Health(
        schema=version,
        is_ours=version == newest(),
        size=size,
        is_writable=not is_replica and read_only == "off",
        is_durable=fsync == "on" and full_pages == "on" and synchronous not in ("off", "local"),
        details={
            "path": session.address.shown,
            "server": f"PostgreSQL {release}",
            "schema": version,
            "tables": f"in the schema {schema}, namespace {session.address.namespace}",
            "fsync": fsync,
            "full_page_writes": full_pages,
            "synchronous_commit": synchronous,
            "data_checksums": checksums,
            "replicas": replicas,
            "synchronous_replicas": synchronous_ones,
            "dead_rows": dead[0],
            "sessions": SHARED if session.is_shared else "direct",
            "rings": "direct" if session.address.direct_url or not session.is_shared else "none",
            "oldest_transaction_seconds": snapshot[1],
        },
    )
