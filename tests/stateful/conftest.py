from tests.support.stores import ground

__all__ = ["ground"]
