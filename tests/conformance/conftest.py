from tests.support.stores import face, ground, new_face, scene

__all__ = ["face", "ground", "new_face", "scene"]
