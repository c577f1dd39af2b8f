"""Pure torch: the stack of client models, and what moves between server and clients."""
