"""The foreman: real processes on real stores."""
