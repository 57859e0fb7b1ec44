"""The contract of a store, as tests to run on a store of your own: docs/guides/writing-a-store.md. Needs pytest."""
