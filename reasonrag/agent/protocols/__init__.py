"""The agents: how each turns a state into messages and a reply into a step; none imports another."""
