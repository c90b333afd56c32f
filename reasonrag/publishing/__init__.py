"""Data sets and models on the Hub, with their cards; no other room imports it."""
