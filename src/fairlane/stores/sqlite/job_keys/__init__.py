"""Keys of jobs on SQLite: the places at them and who is let in, and what people see of them."""
