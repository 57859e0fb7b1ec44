"""Every setting: its type, its default, and where its value comes from."""
