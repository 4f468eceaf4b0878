"""What needs torch itself: so far the cost of a live model (``headwise.torch.costs``)."""
