from tests.servers.pgbouncer import pgbouncer_program

# `make test` installs PgBouncer where it may (tools/ensure_package); elsewhere there is no pooler to test.
collect_ignore = [] if pgbouncer_program() else ["test_pgbouncer.py"]
