"""Run the benchmarks by name, all of them without one."""

from __future__ import annotations

import importlib
import sys

NAMES = (
    "startup",
    "memory",
    "sqlite",
    "enqueue",
    "postgres_enqueue",
    "postgres_turn",
    "postgres_backlog",
    "failover",
    "claimers",
    "worker",
    "fairness",
    "limits",
    "redis_store",
    "api",
    "supervisors",
    "workflows",
    "pages",
)


def main() -> int:
    names = sys.argv[1:] or NAMES
    if "-h" in names or "--help" in names:
        print(f"usage: python -m bench [NAME ...]\n\n{__doc__} There are {', '.join(NAMES)}.")
        return 0
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    sys.argv = sys.argv[:1]
    for number, name in enumerate(names, 1):
        print(f"\n{name}" + (f" ({number} of {len(names)})" if len(names) > 1 else ""), flush=True)
        importlib.import_module(f"bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
