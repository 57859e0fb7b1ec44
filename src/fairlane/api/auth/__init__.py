"""Authentication and authorization of the API."""
