"""Positions as torch modules: embeddings and rotations of features, biases of scores."""
