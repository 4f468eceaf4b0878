"""Multi-head attention as a torch layer, and the encoder and decoder layers around it."""
