"""One process of a race: `python -m tests.races.racer <kind> <address> <number>`, stories on stdin, answers on stdout."""

from __future__ import annotations

import json
import sys

from tests.races.stories import STORIES
from tests.support.stores import open_at


def main(kind: str, address: str, number: str) -> None:
    store = open_at(kind, address)
    tell("ready")
    for line in sys.stdin:
        call = json.loads(line)
        tell(STORIES[call["story"]](store, int(number), **call["params"]))
    store.close()


def tell(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
