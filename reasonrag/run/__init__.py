"""The run engine: paid work on many items, by models behind one journal and one set of caps; imports no room that uses
it."""
