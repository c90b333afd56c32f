"""Ask a model and pay once: requests, journal, budget, prices, rate limits; imports no other room, knows no agent."""
