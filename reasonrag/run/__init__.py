"""The run engine: paid work on many items, by models behind one journal and one set of caps. Knows no command, and not
what an item is; imports no room of those that use it."""
