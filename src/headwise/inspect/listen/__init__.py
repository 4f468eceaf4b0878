"""Hearing every attention call of a model: where it is made, and the proof that nothing changed."""
