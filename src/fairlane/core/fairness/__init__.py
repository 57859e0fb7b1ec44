"""Fair claiming over tenants: accounts, and what a lane asks for next."""
