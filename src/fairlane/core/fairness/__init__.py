"""Fair claiming over tenants: their accounts, and the plan of a lane's next claim."""
