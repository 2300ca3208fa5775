"""Property tests take as long as the machine does."""

from hypothesis import settings

settings.register_profile("planc", deadline=None)
settings.load_profile("planc")
