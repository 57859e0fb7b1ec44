from tests.support.stores import ground as ground
