"""One call of attention, a sample of its rows, and the texts that its queries and keys are."""
