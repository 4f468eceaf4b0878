"""From attention calls to the scores and pictures of every head, as sums that can be added."""
