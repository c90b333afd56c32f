"""Requests to OpenAI-compatible addresses: HTTP, retries, rate limits, refusals; imports no journal and no budget."""
